"""How one rank ended. Most end well: `ranks`, which finds out why one did not, is imported when one has failed."""

from __future__ import annotations

from cloudtrain._dataclass import dataclass
from cloudtrain.runtime.run_folder import RankRecord

LARGEST_OUTPUT = 256 << 10
"""Bytes at the end of a rank's log that are searched: behind the error, Python prints the stacks of all threads."""


@dataclass(frozen=True)
class RankExit:
    """How one rank ended: its exit code (negative: the signal that killed it), record, and last log lines.

    ``output`` is a longer end of its log, where a crash may be explained.
    """

    rank: int
    exit_code: int
    time: float
    record: RankRecord | None = None
    log_tail: tuple[str, ...] = ()
    output: str = ""
