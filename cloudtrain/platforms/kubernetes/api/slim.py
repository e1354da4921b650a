"""The part of an object that describing a job needs: of 200 pods, the rest would fill the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_OF_CONTAINERS = ("env", "envFrom", "volumeMounts", "command", "args", "securityContext")
_OF_PODS = ("volumes", "affinity", "tolerations", "topologySpreadConstraints")
LONGEST_TEXT = 4096
"""Characters of a text in an event. Those of Kubernetes have at most 1,024; the API accepts a megabyte."""
_OF_EVENTS = (
    *("type", "reason", "message", "note", "count", "series"),
    *("firstTimestamp", "lastTimestamp", "eventTime", "involvedObject", "regarding"),
)


def slim(found: dict[str, Any]) -> dict[str, Any]:
    """The object without ``managedFields``, and without the variables, commands and volumes of its pods.

    Variables may hold secrets, too.
    """
    small = {**found, "metadata": _metadata(found.get("metadata") or {})}
    spec = found.get("spec")
    if isinstance(spec, dict):
        small["spec"] = _pod_spec(spec) if found.get("kind") == "Pod" else _spec(spec)
    return small


def slim_event(event: dict[str, Any]) -> dict[str, Any]:
    """The event without who reported it, and without the rest of a text that is longer than Kubernetes' own."""
    metadata = event.get("metadata") or {}
    kept = {name: metadata[name] for name in ("name", "uid", "creationTimestamp") if name in metadata}
    return {
        "metadata": kept,
        **{name: _short(event[name]) for name in _OF_EVENTS if event.get(name) is not None},
    }


def _short(value: Any) -> Any:
    return value[:LONGEST_TEXT] if isinstance(value, str) else value


def _metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in metadata.items() if name != "managedFields"}
    annotations = kept.get("annotations")
    if isinstance(annotations, dict) and _APPLIED in annotations:
        kept["annotations"] = {name: value for name, value in annotations.items() if name != _APPLIED}
    return kept


def _pod_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in spec.items() if name not in _OF_PODS}
    for name in ("containers", "initContainers"):
        if isinstance(kept.get(name), list):
            kept[name] = [
                {key: value for key, value in container.items() if key not in _OF_CONTAINERS}
                for container in kept[name]
            ]
    return kept


def _spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec of a Job, with its template's pod."""
    template = spec.get("template")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        return dict(spec)
    return {**spec, "template": {**template, "spec": _pod_spec(template["spec"])}}
