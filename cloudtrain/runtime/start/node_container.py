"""Creates the command line and the environment with which an engine starts a node's runtime in a container.

Nothing here inspects the machine: `container_files` passes in the facts of the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.patterns import pattern
from cloudtrain.contract.paths import DEFAULT_BASE

APPTAINER, CHARLIECLOUD, ENROOT, OCI, PYXIS = "apptainer", "charliecloud", "enroot", "oci", "pyxis"

PROGRAMS = {
    APPTAINER: ("apptainer", "singularity"),
    CHARLIECLOUD: ("ch-run",),
    ENROOT: ("enroot",),
}
"""The programs of engines that the node itself starts. It uses the first one that is installed."""

BY_SRUN = (PYXIS, OCI)
"""Engines that srun starts, before the node program runs."""

IMAGE_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""The PATH in a container whose image sets none, as Docker would set it."""

ONLY_OUTSIDE = pattern(
    r"(PATH|LD_(LIBRARY_PATH|PRELOAD)|PYTHON(PATH|HOME)|VIRTUAL_ENV|CONDA_.*|TMPDIR|SHELL|PWD|OLDPWD|SHLVL|_"
    r"|BASH_.*|MANPATH|MODULE.*|LOADEDMODULES|_LMFILES_|LMOD_.*|SSL_CERT_(FILE|DIR)|XDG_RUNTIME_DIR"
    r"|(APPTAINER|SINGULARITY)(ENV)?_.*|ENROOT_.*|PYXIS_.*|SLURM_CONTAINER.*|SLURM_SPANK_.*)"
)
"""Variables that describe the node's own programs and folders, which the image does not have."""

_NAME = pattern(r"[A-Za-z_][A-Za-z0-9_]*")

START = (
    "if ! [ -e /opt/ml/input/config/resourceconfig.json ]; then"
    ' echo "cloudtrain: /opt/ml is not the folder of this job in the container: its engine did not bind it" >&2;'
    " exit 125; fi;"
    ' for p in python3 python; do command -v "$p" >/dev/null 2>&1 && exec "$p" "$0" "$@"; done;'
    ' m="cloudtrain: this image has no Python 3.9 or newer"; echo "$m" >&2; echo "$m" >/opt/ml/output/failure;'
    " exit 127"
)
"""The script that ``sh`` runs in the container. ``$0`` is the bundled runtime."""


@dataclass(frozen=True)
class Mount:
    """A folder or file of the node that is mounted in the container, at the path ``target``."""

    source: str
    target: str
    read_only: bool = False

    @classmethod
    def parse(cls, text: str) -> Mount:
        """Parse ``/here``, ``/here:/there`` or ``/here:/there:ro``. Raises ValueError with the problem."""
        source, _, rest = text.partition(":")
        target, _, mode = rest.partition(":")
        if mode not in ("", "ro", "rw"):
            raise ValueError(f"{mode!r} is neither 'ro' nor 'rw'")
        return cls(source, target or source, mode == "ro").checked()

    def __str__(self) -> str:
        """The mount in the format of `parse`."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"

    def checked(self) -> Mount:
        """Return this mount. Raises ValueError if a path cannot be used on the command line of an engine."""
        for path in (self.source, self.target):
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is not absolute")
            if re.search(r'[:,"\\$`\s\x00-\x1f\x7f]', path):
                raise ValueError(f"{path!r} has a character that engines take for their own syntax")
        return self


@dataclass(frozen=True)
class Container:
    """The container of every node of a job, as specified in its request.

    Attributes:
        engine: a name in `PROGRAMS` or `BY_SRUN`.
        image: the image in the engine's notation: see `container_image.image_reference`.
        mounts: additional folders and files, in the format of `Mount.parse`.
        options: additional options for the engine's own command line.
        home: whether the user's home folder is mounted.
    """

    engine: str
    image: str
    mounts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    home: bool = False

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Container | None:
        """The container in the body of a request; None if the job runs without one."""
        given = body.get("container")
        if not given:
            return None
        return cls(
            given["engine"],
            given["image"],
            tuple(given.get("mounts", ())),
            tuple(given.get("options", ())),
            bool(given.get("home")),
        )

    def to_body(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class Node:
    """The facts of a node on which an engine's command line depends.

    Attributes:
        program: the path of the engine's program on this node.
        base: the host's own folder, which is ``/opt/ml`` in the container.
        mounts: the additional mounts that the job needs: the runtime, its source and its data.
        gpu: ``nvidia`` or ``amd`` if the job has GPUs of the node.
        path: the PATH of the image, which Charliecloud does not set itself.
        mount_points: whether Charliecloud has to create mount points that its image lacks (``--write-fake``).
    """

    program: str
    base: str
    mounts: tuple[Mount, ...] = ()
    gpu: str = ""
    path: str = IMAGE_PATH
    mount_points: bool = False


def command(container: Container, node: Node, inner: Sequence[str], environ: Mapping[str, str]) -> list[str]:
    """The command line that runs ``inner`` in a container of an engine in `PROGRAMS`.

    ``environ`` is its environment (`environment`). Its values never go on the command line, which all users can read.
    """
    mounts = all_mounts(container, node)
    if container.engine == APPTAINER:
        return [node.program, "exec", *_apptainer(container, node, mounts), container.image, *inner]
    if container.engine == CHARLIECLOUD:
        return [node.program, *_charliecloud(container, node, mounts), container.image, "--", *inner]
    return [node.program, "start", *_enroot(container, mounts, environ), container.image, *inner]


def all_mounts(container: Container, node: Node) -> list[Mount]:
    """All mounts, with ``/opt/ml`` first. Raises ValueError for a path that cannot be used on a command line."""
    own = [Mount(node.base, DEFAULT_BASE), *without_repeats(node.mounts)]
    return [mount.checked() for mount in own] + [Mount.parse(text) for text in container.mounts]


def without_repeats(mounts: Iterable[Mount]) -> list[Mount]:
    """``mounts`` without those that another one already contains. A folder precedes the mounts inside it."""
    found: list[Mount] = []
    for mount in sorted(set(mounts), key=lambda mount: (mount.target, mount.read_only)):
        above = [other for other in found if f"{mount.target}/".startswith(f"{other.target}/")]
        same = above and above[-1].target == mount.target
        inside = above and above[-1].source == above[-1].target and mount.source == mount.target
        if not same and not (inside and above[-1].read_only == mount.read_only):
            found.append(mount)
    return found


def environment(container: Container, environ: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The environment of the engine's process.

    Args:
        environ: the node's environment. Variables that describe only the node's own programs are left out.
        own: the variables of the job and of cloudtrain, which override those of the image.
    """
    kept = {name: value for name, value in environ.items() if not ONLY_OUTSIDE.fullmatch(name)}
    for name in ("PATH", "XDG_RUNTIME_DIR"):  # the engine itself needs them
        if name in environ:
            kept[name] = environ[name]
    kept.update(
        {name: value for name, value in environ.items() if name.startswith(_OWN_OF[container.engine])}
    )
    kept.update(own)
    if container.engine == APPTAINER:
        # Values of the image override those without the prefix. No shell in the container may evaluate "$" in a value.
        kept["APPTAINER_NO_EVAL"] = kept["SINGULARITY_NO_EVAL"] = "1"
        for name, value in own.items():
            kept[f"APPTAINERENV_{name}"] = kept[f"SINGULARITYENV_{name}"] = value
    return kept


_OWN_OF = {
    APPTAINER: ("APPTAINER_", "SINGULARITY_"),
    CHARLIECLOUD: ("CH_",),
    ENROOT: ("ENROOT_",),
    PYXIS: ("ENROOT_", "PYXIS_"),
    OCI: ("SLURM_CONTAINER_",),
}
"""The variables with which a site or a user configures an engine, such as the folder of its cache."""


def names_inside(container: Container, environ: Mapping[str, str]) -> list[str]:
    """The variables of ``environ`` to pass into the container, for an engine that needs a list of them."""
    own = _OWN_OF[container.engine]
    return sorted(
        name
        for name in environ
        if _NAME.fullmatch(name)
        and name not in ("PATH", "XDG_RUNTIME_DIR", "HOME")
        and not name.startswith(own)
    )


def pull(container: Container, program: str, target: str) -> list[str]:
    """The command that writes the image into the file ``target``; empty if every node can use the image as it is.

    One node pulls for all nodes, which would otherwise download and convert the image at the same time.
    """
    if "://" not in container.image:
        return []
    if container.engine == APPTAINER:
        return [program, "pull", target, container.image]
    if container.engine == ENROOT:
        return [program, "import", "--output", target, container.image]
    return []


def _apptainer(container: Container, node: Node, mounts: Iterable[Mount]) -> list[str]:
    """The options of Apptainer 1.0 to 1.4, and of SingularityCE 3.8 to 4."""
    options = [] if container.home else ["--no-home"]
    options += {"nvidia": ["--nv"], "amd": ["--rocm"]}.get(node.gpu, [])
    for mount in mounts:
        mode = ":ro" if mount.read_only else ""
        options += ["--bind", f"{mount.source}:{mount.target}{mode}"]
    return [*options, "--pwd", DEFAULT_BASE, *container.options]


def _charliecloud(container: Container, node: Node, mounts: Iterable[Mount]) -> list[str]:
    """The options of Charliecloud 0.31 to 0.38. GPUs are files in ``/dev``, which is always mounted."""
    options = ["--home"] if container.home else []
    options += ["--write-fake"] if node.mount_points else []
    options += [f"--bind={mount.source}:{mount.target}" for mount in mounts]
    return [*options, f"--set-env=PATH={node.path}", f"--cd={DEFAULT_BASE}", *container.options]


def _enroot(container: Container, mounts: Iterable[Mount], environ: Mapping[str, str]) -> list[str]:
    """The options of Enroot 3.4 to 4.1. It passes only named variables, whose values it takes from its environment."""
    options = []
    for mount in mounts:
        mode = ",ro" if mount.read_only else ""
        options += ["--mount", f"{mount.source}:{mount.target}:none:x-create=auto,rbind{mode}"]
    for name in names_inside(container, environ):
        options += ["--env", name]
    return [*options, *container.options]
