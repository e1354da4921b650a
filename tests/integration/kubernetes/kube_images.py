"""The container images that the nodes of a test's cluster can pull."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kube_client import KubeClient


@dataclass(frozen=True)
class Image:
    """An image. Its files are those of this machine; by default its Python has cloudtrain and PyTorch."""

    path: str = f"{Path(sys.executable).parent}:/usr/local/bin:{os.defpath}"
    environment: Mapping[str, str] = field(default_factory=dict)
    entrypoint: tuple[str, ...] = ()
    uid: int = 0
    pull_secret: str = ""
    """The name of the Secret without which it cannot be pulled."""


def bare_python(folder: Path) -> Image:
    """An image with /bin/sh and Python, but not cloudtrain; ``folder`` is a new one."""
    folder.mkdir(parents=True)
    (folder / "python3").symlink_to(Path(sys.executable).resolve())
    return Image(path=f"{folder}:/usr/bin:/bin")


class Images:
    """Any name is that of the default image, except those that a test sets."""

    def __init__(self) -> None:
        self.default = Image()
        self.named: dict[str, Image] = {}
        self.missing: set[str] = set()
        """Names that no registry has."""

    def pull(self, name: str, pod: dict[str, object], client: KubeClient) -> Image | str:
        """The image; or the registry's answer, as events quote it."""
        image = self.named.get(name, self.default)
        if name in self.missing:
            return (
                f'rpc error: code = NotFound desc = failed to pull and unpack image "{name}": '
                f'failed to resolve reference "{name}": {name}: not found'
            )
        if image.pull_secret:
            spec, metadata = pod["spec"], pod["metadata"]
            assert isinstance(spec, dict)
            assert isinstance(metadata, dict)
            secrets = [one["name"] for one in spec.get("imagePullSecrets") or ()]
            wanted = image.pull_secret
            if wanted not in secrets or not client.find("secrets", metadata["namespace"], wanted):
                return f'rpc error: code = Unknown desc = failed to pull image "{name}": 401 Unauthorized'
        return image
