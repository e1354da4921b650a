"""Commits of elastic training, as checkpoints know them.

A checkpoint names the last commit before it. From this follows which of a commit and it is newer. The commits
that a later attempt of a job may need are next to its checkpoints.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_KEY = re.compile(r"elastic/[0-9a-f]{16}/run-\d+/(\d{12,})\.pt")


class CommitNumber(NamedTuple):
    """Numbers of one job are in the order in which its training got that far."""

    run: int
    """Of the script's calls of `elastic.run`, from 0."""
    commit: int
    """Of the run's commits, from 1; 0 is its start."""


_newest = CommitNumber(0, 0)


def newest_commit() -> CommitNumber:
    """The last commit that the state of this process contains."""
    return _newest


def committed(number: CommitNumber) -> None:
    """The state of this process is that of a commit."""
    global _newest
    _newest = number


def restored(number: CommitNumber) -> None:
    """The state of this process is that of a checkpoint, which was saved after this commit."""
    committed(max(_newest, number))


def commits_prefix(run: str, number: int) -> str:
    """Of the commits of a job's call ``number`` of `elastic.run`; ``run`` is the hash of the identity of the job."""
    return f"elastic/{run}/run-{number}/"


def commit_key(prefix: str, commit: int) -> str:
    return f"{prefix}{commit:012d}.pt"


def commit_of(key: str) -> int | None:
    """The number of the commit of elastic training that has this key; None if ``key`` is not a commit's."""
    match = _KEY.fullmatch(key)
    return int(match[1]) if match else None
