"""Containers that srun itself starts: with Pyxis, or as OCI bundles.

srun starts the same command line on all nodes, but each host has its own folder for ``/opt/ml``. So a step before it
puts a link to that folder at one path on every node: the *own folder link*. Its parent has a random name.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.start.container_files import copy_shared
from cloudtrain.runtime.start.node_container import (
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
"""The name of the link in the folder that `link_own_folder` makes."""
COPIES = "shared"
"""The folder next to it with copies of files that other jobs use too."""

CONFIG = "config.json"
LARGEST_CONFIG = 10_000_000

LOOKED_FOR = {PYXIS: "--container-image", OCI: "--container="}
"""The option of srun that an engine needs."""


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
        mounts: as in `Mount.parse`.
        environ: the environment of srun. The container gets these variables; their values are not in the options.
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
    """The command of srun in the container. Its path is absolute: any other is looked up outside of the container."""
    return ["/usr/bin/env", "sh", "-c", START, runtime, *arguments]


def write_bundle(container: Container, link: str, mounts: Iterable[str], target: Path) -> None:
    """Write this job's configuration of an OCI bundle: the bundle's own, with the job's mounts.

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
    """Make ``parent`` on this node, for this user only, with the own folder link and copies of ``shared`` files in it.

    Raises OSError, PlatformError.
    """
    os.mkdir(parent, mode=0o700)
    os.symlink(base, os.path.join(parent, OWN_FOLDER))
    copy_shared(shared, Path(parent, COPIES))


def unlink_own_folder(parent: str) -> None:
    """Remove what `link_own_folder` has made, as far as it is there."""
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


def main() -> int:
    """``link PARENT FOLDER [SHARED]...`` or ``unlink PARENT`` on every node; Slurm names the host.

    FOLDER is the job's. The last line of the output is the error.
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
