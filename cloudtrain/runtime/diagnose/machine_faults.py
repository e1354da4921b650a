"""Searches the host of a failed rank for evidence: a full disk, a process killed for lack of memory, faults of GPUs."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cloudtrain._system.patterns import pattern
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.sampling import xids

FULL_BELOW = 1_000_000
"""Free bytes below which a disk counts as full. The limit is not 0 because the end of a rank frees some bytes."""


def with_hints(report: FailureReport, base: Path, no_opt_ml: str) -> FailureReport:
    """``report`` with hints about this machine.

    Args:
        base: the job's folder.
        no_opt_ml: see `Settings.no_opt_ml`.
    """
    report = with_full_disk(report, writable_folders(base))
    if not no_opt_ml:
        return report
    from cloudtrain.contract.opt_ml import with_hint

    return with_hint(report, no_opt_ml)


def with_full_disk(report: FailureReport, folders: Sequence[str | os.PathLike[str]]) -> FailureReport:
    """``report``, with a hint that names the first folder whose disk is full.

    When a write fails, libraries may hide the cause: they raise a different exception, or none at all.
    """
    full = next((folder for folder in folders if _is_full(folder)), None)
    if full is None or report.failure_class == FailureClass.DISK_FULL:
        return report
    hint = (
        f"The disk of {full} is full, which may be the cause: free space on it, or use a larger volume_size."
    )
    return replace(report, hint=f"{hint} {report.hint}".rstrip())


def writable_folders(base: str | os.PathLike[str]) -> tuple[str | os.PathLike[str], ...]:
    """The folders to which a script writes: the job's folder, and the folder for temporary files."""
    # not tempfile.gettempdir, which tries to write: it skips a full folder, and fails if all of them are full
    temporary = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
    return base, temporary


def _is_full(folder: str | os.PathLike[str]) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BELOW
    except OSError:
        return False


def memory_kill_count(processes: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The number of processes that the out-of-memory killer has ended in this cgroup; 0 if unknown.

    On a machine without cgroups for memory, this counts the processes of the whole machine.

    Args:
        processes: the folder of the proc file system.
        groups: the folder below which cgroups are mounted.
    """
    for file in (*_files(processes / "self" / "cgroup", groups), processes / "vmstat"):
        try:
            match = re.search(r"^oom_kill (\d+)$", file.read_text(), re.MULTILINE)
        except OSError:
            continue
        if match:
            return int(match[1])
    return 0


def _files(membership: Path, groups: Path) -> Iterator[Path]:
    """The files with the count: those of the cgroup itself, then those of the mounted root."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):  # version 1
            folder, name = groups / "memory", "memory.oom_control"
        elif not controllers:  # version 2
            folder, name = groups, "memory.events"
        else:
            continue
        yield folder / path.lstrip("/") / name
        yield folder / name


KERNEL_LOG = "/dev/kmsg"
LARGEST_RECORD = 8192
"""The size of the buffer in bytes. The kernel does not return a longer record in parts."""
MOST_RECORDS = 100_000

_RECORD = pattern(rb"^\d+,\d+,(?P<microseconds>\d+),[^;\n]*;(?P<text>NVRM: Xid [^\n]*)", re.MULTILINE)


def gpu_faults_of(sampled: Sequence[tuple[str, int]], since: float) -> str:
    """`gpu_faults`, preceded by the faults in samples. Each of those is a GPU of this host and the number of an Xid."""
    own = [xids.to_line(gpu, number) for gpu, number in sampled]
    return "\n".join(filter(None, (*own, gpu_faults(since))))


def gpu_faults(since: float, path: str = KERNEL_LOG) -> str:
    """The lines ``NVRM: Xid ...`` of the kernel's log, one for each fault of a GPU.

    Args:
        since: the time before which lines do not count, on the clock of `time.monotonic`, which the kernel uses.
    """
    started = since * 1e6
    lines = []
    for record in _records(path):
        for match in _RECORD.finditer(record):
            if int(match["microseconds"]) >= started:
                lines.append(match["text"].decode(errors="backslashreplace"))
    return "\n".join(lines)


def _records(path: str) -> Iterator[bytes]:
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return
    try:
        for _ in range(MOST_RECORDS):
            try:
                record = os.read(descriptor, LARGEST_RECORD)
            except BrokenPipeError:  # the kernel has overwritten records since the last read
                continue
            if not record:
                return
            yield record
    except OSError:  # BlockingIOError: that was the last record
        return
    finally:
        os.close(descriptor)
