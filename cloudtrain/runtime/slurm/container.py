"""Starts containers with srun itself, through Pyxis or as OCI bundles.

srun starts the same command line on all nodes, but each host has its own folder for ``/opt/ml``. Therefore a preceding
step creates a link to that folder at the same path on every node, the *own folder link*. Its parent has a random name.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.start.container_files import copies, copy_shared, needed_mounts, shared_files
from cloudtrain.runtime.start.node_container import (
    BY_SRUN,
    OCI,
    PYXIS,
    START,
    Container,
    Mount,
    Node,
    all_mounts,
    names_inside,
)

OWN_FOLDER = "ml"
"""The name of the link in the folder that `link_own_folder` creates."""
COPIES = "shared"
"""The name of the folder next to the link, with copies of files that other jobs use too."""

CONFIG = "config.json"
LARGEST_CONFIG = 10_000_000
BUNDLE = "bundle"
"""The folder in a job folder with the job's configuration of an OCI bundle."""
PROGRAM = "cloudtrain.runtime.slurm.container"
STEP_SECONDS = 120

LOOKED_FOR = {PYXIS: "--container-image", OCI: "--container="}
"""The option of srun that each engine needs."""


def check_srun(engine: str, help_text: str, place: str) -> None:
    """Raises PlatformError if srun has no option for ``engine``.

    Args:
        help_text: the output of ``srun --help``, inside the job.
        place: the node on which it was printed.
    """
    option = LOOKED_FOR[engine].rstrip("=")
    if re.search(rf"^\s+{option}\b(?!-)", help_text, re.MULTILINE):
        return
    what = (
        "Pyxis, a plugin of Slurm, is not installed there"
        if engine == PYXIS
        else "it needs Slurm 21.08 or newer"
    )
    raise PlatformError(
        f"container: srun on {place} has no {option} (see srun --help): {what}",
        hint="Choose another platform_options.container, such as apptainer.",
    )


def step_options(
    container: Container, link: str, mounts: Iterable[str], environ: Mapping[str, str], bundle: str
) -> list[str]:
    """The options of srun that start its command in the container.

    Args:
        link: the own folder link: see above.
        mounts: mounts as text, for `Mount.parse`.
        environ: the environment of srun. The container gets these variables, whose values are not in the options.
        bundle: for an OCI bundle, the folder with this job's configuration of it (`write_bundle`).

    Raises ValueError for a path that cannot be in an option.
    """
    if container.engine == OCI:
        return [f"--container={bundle}", *container.options]
    return [
        f"--container-image={container.image}",
        f"--container-mounts={','.join(map(str, all_mounts(container, _node(link, mounts))))}",
        "--container-workdir=/opt/ml",
        "--container-mount-home" if container.home else "--no-container-mount-home",
        "--no-container-entrypoint",
        f"--container-env={','.join(names_inside(container, environ))}",
        *container.options,
    ]


def inner_command(runtime: str, arguments: Sequence[str]) -> list[str]:
    """The command of srun in the container. Its path is absolute, as others are looked up outside of the container."""
    return ["/usr/bin/env", "sh", "-c", START, runtime, *arguments]


def write_bundle(container: Container, link: str, mounts: Iterable[str], target: Path) -> None:
    """Write this job's configuration of an OCI bundle, which is the bundle's own with the job's mounts added.

    Slurm sets the command and the variables in it. Raises PlatformError.
    """
    path = Path(container.image) / CONFIG
    try:
        with open(path, "rb") as file:
            config = json.loads(file.read(LARGEST_CONFIG))
        root = config["root"]
        config["root"] = {**root, "path": os.path.join(container.image, root["path"])}
        config["mounts"] = [
            *config.get("mounts", ()),
            *map(_oci_mount, all_mounts(container, _node(link, mounts))),
        ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise PlatformError(
            f"container: {path} is not the configuration of an OCI bundle: {error!r}",
            hint="Set image_uri to a folder with config.json and the root file system, which every node sees.",
        ) from error
    target.mkdir(exist_ok=True)
    (target / CONFIG).write_text(json.dumps(config))


def link_own_folder(parent: str, base: str, shared: Iterable[str]) -> None:
    """Create ``parent`` on this node, for this user only, with the own folder link and copies of ``shared`` files.

    Raises OSError, PlatformError.
    """
    os.mkdir(parent, mode=0o700)
    os.symlink(base, os.path.join(parent, OWN_FOLDER))
    copy_shared(shared, Path(parent, COPIES))


def unlink_own_folder(parent: str) -> None:
    """Remove the files that `link_own_folder` created, if they exist."""
    shutil.rmtree(os.path.join(parent, COPIES), ignore_errors=True)
    for remove, path in ((os.unlink, os.path.join(parent, OWN_FOLDER)), (os.rmdir, parent)):
        try:
            remove(path)
        except OSError:
            continue


def _node(link: str, mounts: Iterable[str]) -> Node:
    return Node("srun", link, tuple(map(Mount.parse, mounts)))


def _oci_mount(mount: Mount) -> dict[str, Any]:
    options = ["rbind", "ro" if mount.read_only else "rw"]
    return {"destination": mount.target, "type": "none", "source": mount.source, "options": options}


class StepContainer:
    """A container of Pyxis or an OCI runtime.

    Args:
        base: the start of an srun command that runs a program once on every node.
        request: the body of the job's request.
        folder: the job folder.
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
        """Check the options of srun, and create the own folder link on every node. Raises PlatformError."""
        shown = subprocess.run(
            [self._base[0], "--help"], capture_output=True, text=True, timeout=STEP_SECONDS
        )
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
            timeout=STEP_SECONDS,
        )
        if done.returncode:
            said = done.stdout.decode("utf-8", "replace").strip().splitlines()[-1:]
            raise PlatformError(f"container: a node cannot prepare /opt/ml: {''.join(said)}")


def is_started_by_srun(request: Mapping[str, object]) -> bool:
    container = Container.from_body(request)
    return container is not None and container.engine in BY_SRUN


def main() -> int:
    """``link PARENT FOLDER [SHARED]...`` or ``unlink PARENT`` on every node; Slurm names the host.

    FOLDER is the job folder. The last line of the output is the error.
    """
    if sys.argv[1] == "link":
        base = os.path.join(sys.argv[3], "hosts", os.environ["SLURMD_NODENAME"])
        try:
            link_own_folder(sys.argv[2], base, sys.argv[4:])
        except PlatformError as error:
            sys.exit(error.message)
    else:
        unlink_own_folder(sys.argv[2])
    return 0


if __name__ == "__main__":
    sys.exit(main())
