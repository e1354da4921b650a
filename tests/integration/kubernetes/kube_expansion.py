"""A container's variables and command, as the kubelet resolves them: references, and ``$(NAME)``."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from kube_client import KubeClient

Object = dict[str, Any]


class ConfigError(Exception):
    """A container cannot be made yet: something that it refers to is missing."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace ``$(NAME)``; ``$$`` is a dollar sign, and a name that is not set stays as it is.

    >>> expand("$(A) $(B) $$(A) $A $", {"A": "1"})
    '1 $(B) $(A) $A $'
    """

    def value(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        return values.get(match[1], match[0])

    return re.sub(r"\$\$|\$\(([^()]*)\)", value, text)


def variables(client: KubeClient, pod: Object, container: Object, ip: str) -> dict[str, str]:
    """The environment of a container.

    Raises:
        ConfigError: a ConfigMap, a Secret or a key is missing.
    """
    values: dict[str, str] = {}
    namespace = pod["metadata"]["namespace"]
    for source in container.get("envFrom") or ():
        plural, reference = _source(source, "configMapRef", "secretRef")
        prefix = source.get("prefix", "")
        data = content(client, plural, namespace, reference)
        values |= {prefix + name: value.decode() for name, value in data.items()}
    for one in container.get("env") or ():
        reference = one.get("valueFrom")
        if reference is None:
            values[one["name"]] = expand(one.get("value", ""), values)
            continue
        found = _referenced(client, pod, container, reference, ip)
        if found is not None:
            values[one["name"]] = found
    return values


def content(client: KubeClient, plural: str, namespace: str, reference: Object) -> dict[str, bytes]:
    """The content of a ConfigMap or a Secret; nothing if it is optional and missing.

    Raises:
        ConfigError: it is missing.
    """
    name = reference.get("name") or reference.get("secretName") or ""
    found = client.find(plural, namespace, name)
    if found is None:
        if reference.get("optional"):
            return {}
        raise ConfigError(f'{plural[:-1]} "{name}" not found')
    data = {key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()}
    for key, value in (found.get("data") or {}).items():
        data[key] = base64.b64decode(value) if plural == "secrets" else value.encode()
    return data


def _referenced(client: KubeClient, pod: Object, container: Object, reference: Object, ip: str) -> str | None:
    if "fieldRef" in reference:
        return field(pod, reference["fieldRef"]["fieldPath"], ip)
    if "resourceFieldRef" in reference:
        kind, _, name = reference["resourceFieldRef"]["resource"].partition(".")
        return str((container.get("resources") or {}).get(kind, {}).get(name, "0"))
    plural, wanted = _source(reference, "configMapKeyRef", "secretKeyRef")
    data = content(client, plural, pod["metadata"]["namespace"], wanted)
    if wanted["key"] in data:
        return data[wanted["key"]].decode()
    if wanted.get("optional"):
        return None
    raise ConfigError(f"couldn't find key {wanted['key']} in {plural[:-1]} {wanted['name']}")


def field(pod: Object, path: str, ip: str) -> str:
    """A field of the pod for the downward API."""
    special = {"status.podIP": ip, "status.podIPs": ip, "status.hostIP": "127.0.0.1"}
    if path in special:
        return special[path]
    if match := re.fullmatch(r"metadata\.(labels|annotations)\['(.*)'\]", path):
        return str((pod["metadata"].get(match[1]) or {}).get(match[2], ""))
    value: Any = pod
    for part in path.split("."):
        value = value.get(part, "") if isinstance(value, dict) else ""
    return str(value)


def _source(reference: Object, config_map: str, secret: str) -> tuple[str, Object]:
    if config_map in reference:
        return "configmaps", reference[config_map]
    return "secrets", reference[secret]
