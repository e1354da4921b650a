"""Submissions that wait in the queue to continue a job, where its nodes can neither requeue nor submit it."""

from __future__ import annotations

from collections.abc import Sequence


def chain_dependency(numbers: Sequence[str]) -> str:
    """The condition for the next submission of a chain: all before it have ended without success.

    If one has succeeded, none of those that are left can start, and ``--kill-on-invalid-dep`` removes them all. With
    only the last one in the condition, those after a removed one would start: a removed one counts as failed.
    """
    return f"afternotok:{':'.join(numbers)}"
