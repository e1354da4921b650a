"""The faults of GPUs in the kernel's log. In most containers the log cannot be read."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

KERNEL_LOG = "/dev/kmsg"
LARGEST_RECORD = 8192
"""Bytes. The kernel refuses to give a longer record in parts."""
MOST_RECORDS = 100_000

_RECORD = re.compile(rb"^\d+,\d+,(?P<microseconds>\d+),[^;\n]*;(?P<text>NVRM: Xid [^\n]*)", re.MULTILINE)


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
