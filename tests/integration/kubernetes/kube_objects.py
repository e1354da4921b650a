"""Small helpers of the controllers of the tests."""

from __future__ import annotations

import itertools
import time
from typing import Any

Object = dict[str, Any]

_numbers = itertools.count(1)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def key_of(item: Object) -> tuple[str, str]:
    """Namespace and name."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def owner_of(item: Object, kind: str) -> str | None:
    """The UID of the controller of this kind that has made it."""
    for owner in item["metadata"].get("ownerReferences") or ():
        if owner.get("controller") and owner["kind"] == kind:
            return str(owner["uid"])
    return None


def owned_by(owner: Object) -> list[Object]:
    """The owner references of what a controller makes for ``owner``."""
    return [
        {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def condition(kind: str, status: bool, reason: str = "", message: str = "") -> Object:
    at = now()
    return {
        "type": kind,
        "status": str(status),
        "lastTransitionTime": at,
        **({"reason": reason} if reason else {}),
        **({"message": message} if message else {}),
    }


def has_condition(item: Object, kind: str) -> bool:
    return any(
        one["type"] == kind and one["status"] == "True"
        for one in (item.get("status") or {}).get("conditions") or ()
    )


def event(
    about: Object, reason: str, message: str, *, warning: bool = False, component: str = "kubelet"
) -> Object:
    """An event about an object."""
    namespace, name = key_of(about)
    at = now()
    return {
        "metadata": {"name": f"{name}.{time.time_ns():x}{next(_numbers):x}", "namespace": namespace},
        "involvedObject": {
            "apiVersion": about.get("apiVersion", "v1"),
            "kind": about.get("kind", "Pod"),
            "namespace": namespace,
            "name": name,
            "uid": about["metadata"]["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Warning" if warning else "Normal",
        "source": {"component": component},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def is_finished(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
