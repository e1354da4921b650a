"""Starts the runtime in a container on a node: finds the engine, prepares its files, and explains a failed start."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._system.files import READ_REGULAR, open_regular
from cloudtrain._system.safe_open import Beneath
from cloudtrain._system.users import user_id, user_name
from cloudtrain.contract import FailureClass, FailureReport, Paths
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.digest import sha256_of
from cloudtrain.runtime.start.messages import NodeJob
from cloudtrain.runtime.start.node_container import (
    BY_SRUN,
    CHARLIECLOUD,
    IMAGE_PATH,
    PROGRAMS,
    START,
    Container,
    Mount,
    Node,
    all_mounts,
    command,
    environment,
    pull,
)
from cloudtrain.storage import uri_scheme, uri_to_path

GPU_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "SLURM_JOB_GPUS",
    "SLURM_STEP_GPUS",
    "PBS_GPUFILE",
)
"""Variables in which a scheduler lists the GPUs of a job."""

TMP = "/tmp"
AMD_DEVICE = "/dev/kfd"
PULL_SECONDS = 3600
HELP_SECONDS = 20
LARGEST_ENVIRONMENT = 1_000_000
"""The most bytes that are read from the file with the variables of a Charliecloud image."""


def find_engine(container: Container, environ: Mapping[str, str]) -> str:
    """The path of the engine's program on this node. Raises PlatformError, which names the program and the PATH."""
    names = PROGRAMS[container.engine]
    path = environ.get("PATH", os.defpath)
    for name in names:
        found = shutil.which(name, path=path)
        if found:
            return found
    raise PlatformError(
        f"container: {' or '.join(names)} is not on {socket.gethostname()}: its PATH is {path}",
        hint="Load it there (platform_options.modules or prologue), or choose another platform_options.container.",
    )


def pulled(container: Container, target: Path, environ: Mapping[str, str]) -> Container:
    """``container`` with an image that all nodes can use. This node pulls an image reference into the file ``target``.

    Raises PlatformError if the image cannot be pulled; no file remains then.
    """
    if not pull(container, "", ""):
        return container
    line = pull(container, find_engine(container, environ), str(target))
    target.unlink(missing_ok=True)  # an interrupted attempt may have left it
    try:
        done = subprocess.run(
            line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=PULL_SECONDS, env={**environ},
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        target.unlink(missing_ok=True)
        raise PlatformError(f"container: {container.image} cannot be pulled: {error}") from error
    if done.returncode or not target.exists():
        target.unlink(missing_ok=True)
        lines = done.stdout.decode("utf-8", "replace").strip().splitlines()[-3:]
        raise PlatformError(
            f"container: {container.image} cannot be pulled on {socket.gethostname()}: {' / '.join(lines)}",
            hint="Nodes of many clusters reach no registry: pull it on a login node, and set image_uri to the file.",
        )
    return replace(container, image=str(target))


def contained(
    container: Container,
    base: str,
    local: Path,
    mounts: Iterable[str],
    runtime: str,
    environ: Mapping[str, str],
    own: Mapping[str, str],
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that run the bundled runtime ``runtime`` in the container.

    Args:
        base: the host's folder, which is ``/opt/ml`` in the container.
        local: the job's folder on a disk of this node. Its subfolder ``tmp`` is ``/tmp`` in the container.
        mounts: the additional mounts that the job needs, in the format of `Mount.parse`.
        environ: the environment of this process.
        own: the variables of the job and of cloudtrain.

    Raises PlatformError if the engine or a mount point is missing.
    """
    needed = _parsed([*mounts, str(local)])
    if not any(Mount.parse(text).target == TMP for text in container.mounts):
        needed = (*needed, _own_tmp(local / "tmp", [*needed, *_parsed(container.mounts)]))
    node = Node(find_engine(container, environ), base, needed, gpu=_gpu(environ))
    values = environment(container, environ, own)
    if container.engine == CHARLIECLOUD:
        image = _charliecloud_variables(container.image)
        values = {**image, **values}
        node = replace(node, path=own.get("PATH") or image.get("PATH") or IMAGE_PATH)
        node = replace(node, mount_points=_lacks_mount_points(container, node))
        values.setdefault("USER", _user())  # ch-run refuses to run without it
    elif _gpu(environ):
        values.setdefault(
            "NVIDIA_VISIBLE_DEVICES", "all"
        )  # Enroot's hook needs it; only the job's devices are visible anyway
        values.setdefault("NVIDIA_DRIVER_CAPABILITIES", "compute,utility")
    try:
        return command(container, node, ["/bin/sh", "-c", START, runtime], values), values
    except ValueError as error:
        raise PlatformError(
            f"container: {error}", hint="Use other folders for the job and its data."
        ) from None


def _parsed(mounts: Iterable[str]) -> tuple[Mount, ...]:
    try:
        return tuple(map(Mount.parse, mounts))
    except ValueError as error:
        raise PlatformError(
            f"container: {error}", hint="Use other folders for the job and its data."
        ) from None


def _own_tmp(folder: Path, mounts: Iterable[Mount]) -> Mount:
    """The mount of a folder as ``/tmp``, with a mount point for each of ``mounts`` below it.

    Otherwise, Apptainer and Charliecloud would mount the node's ``/tmp``, with folders of the user's other jobs.
    """
    folder.mkdir(exist_ok=True)
    for mount in mounts:
        if mount.target.startswith(f"{TMP}/"):
            _make_mount_point(folder, replace(mount, target=mount.target[len(TMP) :]))
    return Mount(str(folder), TMP)


def needed_mounts(request: Mapping[str, Any]) -> list[str]:
    """The cluster's folders that a job needs under their own paths: its data, and its own outputs and checkpoints.

    Folders of other jobs, and the sources of this job's record, are not among them. Raises PlatformError if a folder
    for outputs cannot be created.
    """
    settings = request_settings(request)
    found = []
    for _, uri in settings.channels:
        if uri_scheme(uri) == "file":
            path = uri_to_path(uri)
            folder = next(parent for parent in (path, *path.parents) if parent.is_dir())
            found += [Mount(str(folder), str(folder), read_only=True)] if folder != folder.parent else []
    for uri in filter(None, (settings.output_uri, settings.checkpoint_uri)):
        if uri_scheme(uri) == "file":
            path = uri_to_path(uri)
            try:
                path.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise PlatformError(f"container: {path} cannot be created: {error.strerror}") from error
            found.append(Mount(str(path), str(path)))
    return list(map(str, found))


def shared_files(request: Mapping[str, Any]) -> list[str]:
    """The cluster's files that this job shares with others: the runtime, and the source."""
    source = json.loads(request["hyperparameters"].get("sagemaker_submit_directory", '""'))
    return [request["bundled_runtime"], *([str(uri_to_path(source))] if uri_scheme(source) == "file" else [])]


def copy_shared(files: Iterable[str], target: Path) -> None:
    """Copy files whose folder is named after their hash. Raises PlatformError if one was modified."""
    for name in files:
        file = Path(name)
        copy = target / file.parent.name / file.name
        try:
            copy.parent.mkdir(parents=True, exist_ok=True)
            with open(open_regular(file, READ_REGULAR), "rb") as source, open(copy, "wb") as out:
                shutil.copyfileobj(source, out)
            check_shared(copy, file)
        except OSError as error:
            raise PlatformError(f"{file} cannot be copied to {copy}: {error.strerror}") from error


def copies(files: Iterable[str], target: Path) -> list[str]:
    """The mounts that replace shared files with the copies that `copy_shared` has made.

    So no container can change what other jobs start, even if its engine cannot mount anything read-only.
    """
    places = [Path(name).parent for name in files]
    return [str(Mount(str(target / place.name), str(place), read_only=True)) for place in places]


def check_shared(file: Path, original: Path | None = None) -> None:
    """Raises PlatformError if the hash of a file is not the name of its folder, and OSError if it cannot be read."""
    if sha256_of(file) != file.parent.name:
        raise PlatformError(
            f"{original or file} was changed: its SHA-256 is not the name of its folder",
            hint="Remove it, and submit the job again. A script of yours may have changed it.",
        )


def _gpu(environ: Mapping[str, str]) -> str:
    if not any(environ.get(name) for name in GPU_VARIABLES):
        return ""
    return "amd" if os.path.exists(AMD_DEVICE) else "nvidia"


def _charliecloud_variables(image: str) -> dict[str, str]:
    """The variables that the image sets. With ``ch-run --set-env``, they would override those of the job."""
    try:
        with open(os.path.join(image, "ch", "environment"), encoding="utf-8", errors="replace") as file:
            lines = file.read(LARGEST_ENVIRONMENT).splitlines()
    except OSError:  # a SquashFS file, or a name in the storage of ch-image
        return {}
    pairs = (line.partition("=") for line in lines if "=" in line)
    return {name: _unquoted(value) for name, _, value in pairs if name.strip() == name and name}


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == "'" else value


def _lacks_mount_points(container: Container, node: Node) -> bool:
    """Whether ch-run has to create mount points. If it cannot (before 0.33), creates them in the image's folder.

    Raises PlatformError if they cannot be created.
    """
    image = Path(container.image)
    if not image.is_dir():
        return _has_write_fake(node.program)
    missing = [mount for mount in all_mounts(container, node) if not _is_in_image(image, mount.target)]
    if not missing:
        return False
    if _has_write_fake(node.program):
        return True
    try:
        for mount in missing:
            _make_mount_point(image, mount)
    except OSError as error:
        raise PlatformError(
            f"container: the image {image} has no {missing[0].target}, and it cannot be made there: {error}",
            hint=f"Create it in the image (mkdir -p {image}{missing[0].target}), or use Charliecloud 0.33 or newer.",
        ) from error
    return False


def _make_mount_point(image: Path, mount: Mount) -> None:
    """Create an empty folder or file in the image for ``mount``, and nothing outside it. Raises OSError."""
    *parents, name = Path(mount.target.lstrip("/")).parts
    place = image
    for part in parents if not os.path.isdir(mount.source) else (*parents, name):
        place /= part
        if place.is_symlink():
            raise OSError(errno.ELOOP, "it is a link", str(place))
        place.mkdir(exist_ok=True)
    if not os.path.isdir(mount.source):
        (place / name).touch()


def _is_in_image(image: Path, target: str) -> bool:
    """Whether ``target`` exists in the container. Its ``/tmp`` is the node's."""
    return f"{target}/".startswith("/tmp/") or (image / target.lstrip("/")).exists()


def _has_write_fake(program: str) -> bool:
    try:
        done = subprocess.run(
            [program, "--help"],
            capture_output=True,
            timeout=HELP_SECONDS,
            env={**os.environ, "USER": _user()},
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--write-fake" in done.stdout + done.stderr


def _user() -> str:
    try:
        return os.environ.get("USER") or user_name(user_id())
    except (KeyError, ImportError):
        return str(user_id())


NOT_STARTED = 125
"""The exit code for a container that cannot start, as used by ``docker run``."""
INTERRUPTED = 128 + signal.SIGTERM


def in_container(
    job: NodeJob, base: str, local: str, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command line with which a container engine starts the runtime, and the environment of the runtime.

    The command is empty without an engine, or if this process is already in the container. Raises PlatformError.
    """
    container = Container.from_body({"container": job.container})
    if container is None:
        return [], dict(environment)
    inside = {**environment, "SAGEMAKER_BASE_DIR": DEFAULT_BASE}
    if container.engine in BY_SRUN:
        return [], inside
    inside.pop("CLOUDTRAIN_DIE_WITH_PARENT")  # the engine may be between the two
    own = {
        name: value
        for name, value in inside.items()
        if name in job.environment or name.startswith("CLOUDTRAIN_")
    }
    own["SAGEMAKER_BASE_DIR"] = DEFAULT_BASE
    shared = Path(local, "shared")
    copy_shared(job.shared, shared)
    mounts = [*job.mounts, *copies(job.shared, shared)]
    return contained(container, base, Path(local), mounts, job.runtime, inside, own)


def report_start(container: Mapping[str, Any], name: str, paths: Paths, code: int) -> None:
    """Write a failure report for a runtime that an engine did not start, or that ended without a report.

    The container may have replaced the files that this reads and writes with anything.
    """
    if not container or code <= 0 or code == INTERRUPTED:
        return
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        base.open(paths.key(paths.failure_report)).close()
        return
    engine, image = container["engine"], container["image"]
    message = f"{engine} did not run the runtime in {image}: exit code {code}"
    hint = "See the last lines of the log: cloudtrain logs JOB"
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        text = base.read(paths.key(paths.failure), LARGEST_REPORT).decode("utf-8", "replace").strip()
        message, hint = text.removeprefix("cloudtrain: "), ""
    write_report(paths, report_of(name, f"container: {message}", hint, code))


def report_of(name: str, message: str, hint: str, code: int) -> FailureReport:
    return FailureReport(FailureClass.PLATFORM, message, hint, host=name, exit_code=code, time=time.time())


def write_report(paths: Paths, report: FailureReport) -> None:
    with contextlib.suppress(OSError), Beneath(paths.base) as base:  # a full disk
        base.write(paths.key(paths.failure_report), report.to_json().encode())
