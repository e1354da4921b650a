"""The container that srun starts on the nodes of a job: what has to be there before, and is removed after."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.slurm.container import (
    COPIES,
    OWN_FOLDER,
    check_srun,
    inner_command,
    step_options,
    write_bundle,
)
from cloudtrain.runtime.start.container_files import copies, needed_mounts, shared_files
from cloudtrain.runtime.start.node_container import BY_SRUN, OCI, Container

BUNDLE = "bundle"
"""The folder of a job with its configuration of an OCI bundle."""
PROGRAM = "cloudtrain.runtime.slurm.container"
SECONDS = 120


class StepContainer:
    """A container of Pyxis or an OCI runtime.

    Args:
        base: the beginning of an srun command that runs something once on every node.
        request: the body of the job's request.
        folder: the job's.
    """

    def __init__(self, base: Sequence[str], request: Mapping[str, Any], folder: Path) -> None:
        container = Container.from_body(request)
        assert container
        self._container = container
        self._base = list(base)
        self._folder = folder
        self._runtime = str(request["bundled_runtime"])
        self._request = request
        self._shared = shared_files(request)
        self._mounts: list[str] = []
        self._parent = os.path.join(tempfile.gettempdir(), f"cloudtrain-{secrets.token_hex(8)}")

    def begin(self) -> None:
        """Look for the options of srun, and put the own folder link on every node. Raises PlatformError."""
        shown = subprocess.run([self._base[0], "--help"], capture_output=True, text=True, timeout=SECONDS)
        check_srun(self._container.engine, shown.stdout + shown.stderr, socket.gethostname())
        self._mounts = [
            *needed_mounts(self._request),
            *copies(self._shared, Path(self._parent, COPIES)),
        ]
        if self._container.engine == OCI:
            write_bundle(self._container, self._link, self._mounts, self._folder / BUNDLE)
        self._on_nodes("link", self._parent, str(self._folder), *self._shared)

    def end(self) -> None:
        self._on_nodes("unlink", self._parent)

    def command(self, arguments: Sequence[str]) -> list[str]:
        """The srun command that runs a module of the bundled runtime in the container of every node."""
        bundle = str(self._folder / BUNDLE)
        try:
            options = step_options(self._container, self._link, self._mounts, os.environ, bundle)
        except ValueError as error:
            raise PlatformError(
                f"container: {error}", hint="Use other folders for the job and its data."
            ) from None
        return [*self._base, *options, *inner_command(self._runtime, arguments)]

    @property
    def _link(self) -> str:
        return f"{self._parent}/{OWN_FOLDER}"

    def _on_nodes(self, *arguments: str) -> None:
        command = [*self._base, sys.executable, self._runtime, PROGRAM, *arguments]
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
        if done.returncode:
            said = done.stdout.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise PlatformError(f"container: a node cannot prepare /opt/ml: {''.join(said)}")


def is_started_by_srun(request: Mapping[str, object]) -> bool:
    container = Container.from_body(request)
    return container is not None and container.engine in BY_SRUN
