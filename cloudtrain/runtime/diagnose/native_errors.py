"""The errors that native code prints before it ends a rank by a signal: C++ exceptions, NCCL's watchdog, TensorFlow."""

from __future__ import annotations

import re

LARGEST = 256 << 10
"""Bytes at the end of a rank's log that are searched: behind the error, Python prints the stacks of all threads."""

LONGEST_MESSAGE = 300

_SPEAKS = re.compile(
    r"what\(\):|ProcessGroupNCCL|NCCL WARN|\bncclRemoteError\b|^(?:\[rank\d+\]: ?)?Cuda failure |Duplicate GPU detected"
    r"|^F\d{4} |: F \S+\.cc:\d+\]|Unexpected bus error encountered in worker|NVRM: Xid"
)
"""Lines that libraries print, and not scripts."""

_PREFIX = re.compile(
    r"^.*?(?:what\(\):\s+|\.(?:cpp|cc):\d+\]\s+|NCCL WARN\s+)(?:\[[^\]]*\bRank \d+\]\s+)*"
    r"(?:[\w ]*watchdog thread terminated with exception:\s+)?(?:\[Rank \d+\]\s+)?"
)


def native_error(output: str) -> str:
    """The lines of ``output`` in which native code says why it fails; empty if there are none."""
    return "\n".join(line for line in output.splitlines() if _SPEAKS.search(line))


def message_of(error: str, pattern: str | re.Pattern[str]) -> str:
    """The line of ``error`` that ``pattern`` matches, without what comes before the message."""
    for line in error.splitlines():
        if re.search(pattern, line):
            shorter = _PREFIX.sub("", line)
            return (shorter if re.search(pattern, shorter) else line.strip())[:LONGEST_MESSAGE]
    return ""
