"""Merges a patch into the template of a job's pods."""

from __future__ import annotations

from typing import Any


def merge(base: Any, patch: Any) -> Any:
    """``base`` with ``patch`` in it, as a strategic merge patch of Kubernetes.

    Mappings are merged. In lists of mappings, elements with the same ``name`` are merged, others are added. Any other
    list replaces that of ``base``, and None removes a key.
    """
    if isinstance(base, dict) and isinstance(patch, dict):
        merged = dict(base)
        for key, value in patch.items():
            if value is None:
                merged.pop(key, None)
            else:
                merged[key] = merge(base[key], value) if key in base else value
        return merged
    if _are_named(base) and _are_named(patch):
        patches = {item["name"]: item for item in patch}
        merged_items = [merge(item, patches.pop(item["name"], {})) for item in base]
        return [*merged_items, *patches.values()]
    return patch


def _are_named(items: Any) -> bool:
    return isinstance(items, list) and all(isinstance(item, dict) and "name" in item for item in items)
