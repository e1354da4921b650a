"""The environment variables of a pod."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.link.secret import VARIABLE as SECRET
from cloudtrain.platforms.kubernetes.pod_files import JOB_SECRET
from cloudtrain.platforms.kubernetes.render.objects import documents
from cloudtrain.platforms.kubernetes.render.parts import Parts
from cloudtrain.spec.redact import REDACTED

RUNTIME_SHA256 = "CLOUDTRAIN_RUNTIME_SHA256"
"""The variable by which `pod_start` knows the runtime that it may start."""
DOCUMENTS_SHA256 = "CLOUDTRAIN_DOCUMENTS_SHA256"
"""The same for the documents of the contract, one after the other. The runtime knows the SHA-256 of the source."""

POD = "CLOUDTRAIN_POD"
"""The variable by which `pod_start` knows the pod that has the host name of its node."""


def variables(parts: Parts, extra: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """The container's ``env``. Raises InvalidJob for a reference to a Secret that is not one."""
    plain = {
        **parts.settings.to_environ(),
        RUNTIME_SHA256: parts.runtime_sha256,
        DOCUMENTS_SHA256: hashlib.sha256("".join(documents(parts).values()).encode()).hexdigest(),
        **(extra or {}),
    }
    found: list[dict[str, Any]] = [{"name": name, "value": literal(value)} for name, value in plain.items()]
    found.append(_from_secret(SECRET, parts.name, JOB_SECRET))
    for name, value in parts.job.shown_environment.items():
        if name in plain or name == SECRET or name in parts.options.secret_env:
            continue
        if value == REDACTED:
            found.append(_from_secret(name, parts.name, name))
        else:
            found.append({"name": name, "value": literal(value)})
    if parts.options.host_network:
        found.append({"name": POD, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}})
    return [*found, *_references(parts.options.secret_env)]


def sources(env_from: list[str]) -> list[dict[str, Any]]:
    """The container's ``envFrom``. Raises InvalidJob."""
    found = []
    for index, text in enumerate(env_from):
        kind, _, name = text.partition(":")
        if kind not in ("secret", "configmap") or not name:
            raise InvalidJob(
                f"platform_options.env_from[{index}]: {text!r} names neither a Secret nor a ConfigMap",
                hint="Write secret:NAME or configmap:NAME.",
            )
        field = "secretRef" if kind == "secret" else "configMapRef"
        found.append({field: {"name": name}})
    return found


def literal(text: str) -> str:
    """``text`` so that Kubernetes, which replaces ``$(NAME)`` and ``$$``, passes it on as it is."""
    return text.replace("$", "$$") if "$(" in text or "$$" in text else text


def _references(secret_env: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for name, reference in secret_env.items():
        secret, _, key = reference.partition("/")
        if not secret or not key or "/" in key:
            raise InvalidJob(
                f"platform_options.secret_env.{name}: is not a reference to a key of a Secret",
                hint=f"Write {name}: SECRET/KEY, the names of a Secret of the namespace and of a key in it. "
                "To pass a variable of this machine, name it in secrets.",
            )
        yield _from_secret(name, secret, key)


def _from_secret(name: str, secret: str, key: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key}}}
