"""The part of the node program that starts the runtime in a container, and explains when it did not start."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import FailureClass, FailureReport, Paths
from cloudtrain.contract.documents import LARGEST_REPORT
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.runtime.start.container_files import contained, copies, copy_shared
from cloudtrain.runtime.start.node_container import BY_SRUN, Container

NOT_STARTED = 125
"""The exit code for a container that cannot start, as of ``docker run``."""
INTERRUPTED = 128 + signal.SIGTERM


class JobInContainer(Protocol):
    """The fields of `node_job.NodeJob` that a container needs."""

    @property
    def environment(self) -> Mapping[str, str]: ...
    @property
    def container(self) -> Mapping[str, Any]: ...
    @property
    def mounts(self) -> Sequence[str]: ...
    @property
    def shared(self) -> Sequence[str]: ...
    @property
    def runtime(self) -> str: ...


def in_container(
    job: JobInContainer, base: str, local: str, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment of the runtime, if it needs a program to start it: a container engine.

    The command is empty without one, and if this process is in the container already. Raises PlatformError.
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
    """Write a report for a runtime that a container engine did not start, or that ended without one.

    The container may have left anything in place of these files.
    """
    if not container or code <= 0 or code == INTERRUPTED:
        return
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        base.open(key_of(paths, paths.failure_report)).close()
        return
    engine, image = container["engine"], container["image"]
    message = f"{engine} did not run the runtime in {image}: exit code {code}"
    hint = "The last lines of the log say why: cloudtrain logs JOB"
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        said = base.read(key_of(paths, paths.failure), LARGEST_REPORT).decode("utf-8", "replace").strip()
        message, hint = said.removeprefix("cloudtrain: "), ""
    write_report(paths, report_of(name, f"container: {message}", hint, code))


def key_of(paths: Paths, path: Path) -> str:
    return path.relative_to(paths.base).as_posix()


def report_of(name: str, message: str, hint: str, code: int) -> FailureReport:
    return FailureReport(FailureClass.PLATFORM, message, hint, host=name, exit_code=code, time=time.time())


def write_report(paths: Paths, report: FailureReport) -> None:
    with contextlib.suppress(OSError), Beneath(paths.base) as base:  # a full disk
        base.write(key_of(paths, paths.failure_report), report.to_json().encode())
