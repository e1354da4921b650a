"""Evidence on the host of a failed rank: a full disk, a process killed for lack of memory, faults of GPUs."""

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
"""Free bytes below which a disk counts as full: the end of a rank frees some."""


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

    Libraries hide the cause when a write fails: another exception, or none at all.
    """
    full = next((folder for folder in folders if _is_full(folder)), None)
    if full is None or report.failure_class == FailureClass.DISK_FULL:
        return report
    hint = (
        f"The disk of {full} is full, which may be the cause: free space on it, or use a larger volume_size."
    )
    return replace(report, hint=f"{hint} {report.hint}".rstrip())


def writable_folders(base: str | os.PathLike[str]) -> tuple[str | os.PathLike[str], ...]:
    """Where a script writes: its job's folder, and that of temporary files."""
    # tempfile.gettempdir tries to write: it would skip a full folder, and fail if all of them are full.
    temporary = next(filter(None, map(os.environ.get, ("TMPDIR", "TEMP", "TMP"))), "/tmp")
    return base, temporary


def _is_full(folder: str | os.PathLike[str]) -> bool:
    try:
        return shutil.disk_usage(folder).free < FULL_BELOW
    except OSError:
        return False


def memory_kill_count(processes: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """The number of processes that the out-of-memory killer has ended in this group; 0 if unknown.

    On a machine without groups for memory, processes of the whole machine count.

    Args:
        processes: the folder of the proc file system.
        groups: the folder below which the groups are mounted.
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
    """The files with the count, of the group itself and then of what is mounted as the root."""
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
"""Bytes. The kernel refuses to give a longer record in parts."""
MOST_RECORDS = 100_000

_RECORD = pattern(rb"^\d+,\d+,(?P<microseconds>\d+),[^;\n]*;(?P<text>NVRM: Xid [^\n]*)", re.MULTILINE)


def gpu_faults_of(sampled: Sequence[tuple[str, int]], since: float) -> str:
    """The same, and before it the faults that samples have found: each a GPU of this host, and a number."""
    own = [xids.to_line(gpu, number) for gpu, number in sampled]
    return "\n".join(filter(None, (*own, gpu_faults(since))))


def gpu_faults(since: float, path: str = KERNEL_LOG) -> str:
    """The lines ``NVRM: Xid ...`` of the kernel's log, one for each fault of a GPU.

    Args:
        since: on the clock of `time.monotonic`, which the kernel uses; earlier lines do not count.
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
