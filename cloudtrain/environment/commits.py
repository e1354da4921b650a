"""Numbers and keys of the commits of elastic training.

A checkpoint records the last commit before it, which shows whether another commit is newer than the checkpoint. The
commits that a later attempt of a job may need are stored next to its checkpoints.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_KEY = re.compile(r"elastic/[0-9a-f]{16}/run-\d+/(\d{12,})\.pt")


class CommitNumber(NamedTuple):
    """Within one job, the numbers are in the order of training progress."""

    run: int
    """The index of the script's call of `elastic.run`, from 0."""
    commit: int
    """The number of the commit within that call, from 1; 0 is its start."""


_newest = CommitNumber(0, 0)


def newest_commit() -> CommitNumber:
    """The last commit that the state of this process contains."""
    return _newest


def committed(number: CommitNumber) -> None:
    """Record that this process has the state of the commit ``number``, or of a checkpoint that was saved after it.

    A script that has restored a checkpoint of its second run calls its first one again: the number does not decrease.
    """
    global _newest
    _newest = max(_newest, number)


def commits_prefix(run: str, number: int) -> str:
    """The key prefix of the commits of call ``number`` of `elastic.run`; ``run`` is the hash of the job's identity."""
    return f"elastic/{run}/run-{number}/"


def commit_key(prefix: str, commit: int) -> str:
    return f"{prefix}{commit:012d}.pt"


def commit_of(key: str) -> int | None:
    """The number of the commit of elastic training with this key; None if ``key`` is not that of a commit."""
    match = _KEY.fullmatch(key)
    return int(match[1]) if match else None
