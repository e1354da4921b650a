"""The volumes of a pod: its own folders, what cloudtrain delivers, and the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.pod_files import MOUNTS, URLS, runtime_map
from cloudtrain.platforms.kubernetes.render.parts import Parts
from cloudtrain.platforms.kubernetes.render.resources import quantity
from cloudtrain.storage import uri_scheme
from cloudtrain.storage.uri import uri_to_path

_OWN = (DEFAULT_BASE, MOUNTS, "/dev/shm", "/tmp")
_CLAIM = re.compile(r"(?P<claim>[a-z0-9]([-a-z0-9.]*[a-z0-9])?):(?P<path>/[^:]*)(?P<read_only>:ro)?")


@dataclass(frozen=True)
class Volume:
    """A volume of the user."""

    source: Mapping[str, Any]
    path: str
    read_only: bool = False
    sub_path: str = ""


def volumes_of(options: KubernetesOptions) -> list[Volume]:
    """The job's ``volumes``. Raises InvalidJob."""
    found = [
        _parse(volume, f"platform_options.volumes[{index}]") for index, volume in enumerate(options.volumes)
    ]
    paths = [volume.path for volume in found]
    for index, path in enumerate(paths):
        if path in paths[:index] or path in _OWN:
            raise InvalidJob(
                f"platform_options.volumes[{index}]: something else is mounted at {path}",
                hint="Mount it at another path, for example /data.",
            )
    return found


def check_path(field: str, uri: str | None, volumes: list[Volume], *, writes: bool = False) -> None:
    """Raises InvalidJob for a ``file://`` URI that is on none of ``volumes``, or on one that is read-only."""
    if not uri or uri_scheme(uri) != "file":
        return
    path = PurePosixPath(uri_to_path(uri))
    inside = [volume for volume in volumes if path.is_relative_to(volume.path)]
    if not inside:
        raise InvalidJob(
            f"{field}: {path} is on this machine, and pods see only what is mounted in them",
            hint=f"Mount a PersistentVolumeClaim there: platform_options.volumes: [CLAIM:{path.parent}]; or use an "
            "s3:// URI.",
        )
    nearest = max(inside, key=lambda volume: len(volume.path))
    if writes and nearest.read_only:
        raise InvalidJob(
            f"{field}: {path} is on a volume that is mounted read-only",
            hint=f"Remove :ro from the volume at {nearest.path}, or choose another path.",
        )


def pod_volumes(parts: Parts, *, has_ranks: bool = True) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The pod's ``volumes`` and the container's ``volumeMounts``. Raises InvalidJob.

    Args:
        has_ranks: false for a pod that asks for no huge pages: a node does not mount them there.
    """
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []

    def add(name: str, source: Mapping[str, Any], path: str, **more: Any) -> None:
        volumes.append({"name": name, **source})
        mounts.append({"name": name, "mountPath": path, **more})

    options = parts.options
    add("work", {"emptyDir": {"sizeLimit": options.disk} if options.disk else {}}, DEFAULT_BASE)
    add("tmp", {"emptyDir": {}}, "/tmp")
    shm = {"medium": "Memory"}
    if options.shm_size is not None:
        shm["sizeLimit"] = quantity("shm_size", options.shm_size)
    add("shm", {"emptyDir": shm}, "/dev/shm")
    add("config", {"configMap": {"name": parts.name}}, f"{MOUNTS}/config", readOnly=True)
    if not parts.by_url:
        runtime = {"configMap": {"name": runtime_map(parts.name)}}
        add("runtime", runtime, f"{MOUNTS}/runtime", readOnly=True)
    if parts.by_url:
        add("secret", {"secret": _urls(parts)}, f"{MOUNTS}/secret", readOnly=True)
    for name in options.resources:
        if has_ranks and name.startswith("hugepages-"):
            medium = f"HugePages-{name.removeprefix('hugepages-')}"
            add(name.lower(), {"emptyDir": {"medium": medium}}, f"/{name.lower()}")
    for index, volume in enumerate(volumes_of(options)):
        more: dict[str, Any] = {"readOnly": True} if volume.read_only else {}
        if volume.sub_path:
            more["subPath"] = volume.sub_path
        add(f"volume-{index}", volume.source, volume.path, **more)
    return volumes, mounts


def _urls(parts: Parts) -> dict[str, Any]:
    """Only the keys that are files: what the hosts share, and variables of the job, are in the same Secret."""
    return {"secretName": parts.name, "items": [{"key": key, "path": key} for key in URLS]}


def _parse(volume: str | Mapping[str, Any], where: str) -> Volume:
    if isinstance(volume, str):
        match = _CLAIM.fullmatch(volume)
        if not match:
            raise InvalidJob(
                f"{where}: {volume!r} is not a volume",
                hint="Write CLAIM:/PATH or CLAIM:/PATH:ro, with the name of a PersistentVolumeClaim.",
            )
        claim = {"persistentVolumeClaim": {"claimName": match["claim"]}}
        return Volume(claim, _clean(match["path"], where), bool(match["read_only"]))
    given = dict(volume)
    path, read_only, sub_path = (
        given.pop("path", ""),
        given.pop("read_only", False),
        given.pop("sub_path", ""),
    )
    if not isinstance(path, str) or not isinstance(read_only, bool) or not isinstance(sub_path, str):
        raise InvalidJob(f"{where}: path and sub_path are text, read_only is true or false")
    if len(given) != 1 or not all(isinstance(value, dict) for value in given.values()):
        raise InvalidJob(
            f"{where}: expected path and one source",
            hint="For example {path: /data, nfs: {server: nfs.example.com, path: /exports}}: the sources are those of "
            "a pod's volumes.",
        )
    return Volume(given, _clean(path, where), read_only, sub_path)


def _clean(path: str, where: str) -> str:
    if not path.startswith("/") or ":" in path or ".." in path.split("/") or path.strip("/") == "":
        raise InvalidJob(f"{where}: {path!r} is not an absolute path", hint="For example /data.")
    return f"/{path.strip('/')}"
