"""The volumes of a pod, as folders of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from kube_client import KubeClient
from kube_containers import Mount
from kube_expansion import ConfigError, content, expand, field

Object = dict[str, Any]

UNITS = {
    "": 1,
    "m": 0.001,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
}


def quantity(text: Any) -> float:
    """A quantity of Kubernetes.

    >>> quantity("500m"), quantity("1Gi"), quantity(2)
    (0.5, 1073741824.0, 2.0)
    """
    match = re.fullmatch(r"([\d.]+)([A-Za-z]*)", str(text))
    assert match, f"not a quantity: {text}"
    return float(match[1]) * UNITS[match[2]]


class Volumes:
    """The volumes of one pod, below ``folder``.

    Args:
        claims: the folder of the namespace's PersistentVolumeClaims.
        ip: the pod's address.
    """

    def __init__(self, client: KubeClient, pod: Object, folder: Path, claims: Path, ip: str) -> None:
        self._client = client
        self._pod = pod
        self._folder = folder
        self._claims = claims
        self._ip = ip
        self._group: int | None = (pod["spec"].get("securityContext") or {}).get("fsGroup")
        self._paths: dict[str, Mount] = {}

    def make(self) -> None:
        """Make all of them.

        Raises:
            ConfigError: the message is that of a FailedMount event.
        """
        for volume in self._pod["spec"].get("volumes") or ():
            if volume["name"] not in self._paths:
                try:
                    self._paths[volume["name"]] = self._make(volume)
                except ConfigError as error:
                    name = volume["name"]
                    raise ConfigError(f'MountVolume.SetUp failed for volume "{name}" : {error}') from None

    def mounts(self, container: Object, env: dict[str, str]) -> list[Mount]:
        """Where a container has them."""
        found = []
        for one in container.get("volumeMounts") or ():
            volume = self._paths[one["name"]]
            source = volume.source
            if inside := one.get("subPath") or expand(one.get("subPathExpr", ""), env):
                source = os.path.join(source, inside)
                if not os.path.exists(source):
                    os.makedirs(source)
            read_only = volume.read_only or one.get("readOnly", False)
            found.append(Mount(source, one["mountPath"], read_only, volume.size))
        return found

    def _asks_for(self, resource: str) -> bool:
        containers = self._pod["spec"]["containers"]
        asked = [one.get("resources", {}).get("requests") or {} for one in containers]
        return any(name.lower() == resource for requests in asked for name in requests)

    def _make(self, volume: Object) -> Mount:
        path = self._folder / volume["name"]
        if (empty := volume.get("emptyDir")) is not None:
            medium = empty.get("medium", "")
            if medium.startswith("HugePages-") and not self._asks_for(medium.lower()):
                words = "hugePages storage requested, but there is no resource request for huge pages"
                raise ConfigError(f"medium {medium}: {words}")
            if medium == "Memory":
                return Mount("", "", size=int(quantity(empty.get("sizeLimit", 0))))
            return Mount(str(self._own(path)), "")
        if claim := volume.get("persistentVolumeClaim"):
            name = claim["claimName"]
            if not self._client.find("persistentvolumeclaims", self._pod["metadata"]["namespace"], name):
                raise ConfigError(f'persistentvolumeclaim "{name}" not found')
            return Mount(str(self._own(self._claims / name)), "", claim.get("readOnly", False))
        if host := volume.get("hostPath"):
            return Mount(host["path"], "")
        if projected := volume.get("projected"):
            files: dict[str, tuple[bytes, int]] = {}
            for source in projected["sources"]:
                files |= self._files(source, projected.get("defaultMode", 0o644))
            return self._write(path, files)
        return self._write(path, self._files(volume, 0o644))

    def _files(self, source: Object, mode: int) -> dict[str, tuple[bytes, int]]:
        """Content and mode of each file of a ConfigMap, a Secret or the downward API."""
        if downward := source.get("downwardAPI"):
            return {
                item["path"]: (field(self._pod, item["fieldRef"]["fieldPath"], self._ip).encode(), mode)
                for item in downward["items"]
            }
        if "serviceAccountToken" in source:
            return {source["serviceAccountToken"]["path"]: (b"token", mode)}
        plural = "configmaps" if "configMap" in source else "secrets"
        wanted = source.get("configMap") or source.get("secret") or {}
        data = content(self._client, plural, self._pod["metadata"]["namespace"], wanted)
        mode = wanted.get("defaultMode", mode)
        if "items" not in wanted:
            return {name: (value, mode) for name, value in data.items()}
        missing = [item["key"] for item in wanted["items"] if item["key"] not in data]
        if missing and not wanted.get("optional"):
            raise ConfigError(f"references non-existent config key: {missing[0]}")
        return {
            item["path"]: (data[item["key"]], item.get("mode", mode))
            for item in wanted["items"]
            if item["key"] in data
        }

    def _write(self, path: Path, files: dict[str, tuple[bytes, int]]) -> Mount:
        """As the kubelet writes them, so that all change together: links to ``..data``, a link to a folder."""
        hidden = path / "..2026_01_01"
        hidden.mkdir(parents=True, exist_ok=True)
        (path / "..data").symlink_to(hidden.name)
        for name, (data, mode) in files.items():
            file = hidden / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
            file.chmod(mode | 0o440 if self._group else mode)
            if self._group:
                os.chown(file, 0, self._group)
            first = name.partition("/")[0]
            if not (path / first).is_symlink():
                (path / first).symlink_to(f"..data/{first}")
        return Mount(str(path), "", True)

    def _own(self, path: Path) -> Path:
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o2777 if self._group else 0o777)
        if self._group:
            os.chown(path, -1, self._group)
        return path
