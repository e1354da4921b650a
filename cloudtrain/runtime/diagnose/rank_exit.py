"""The end of one rank. `ranks`, which diagnoses failures, is imported only when a rank has failed."""

from __future__ import annotations

from cloudtrain._dataclass import dataclass
from cloudtrain.runtime.run_folder import RankRecord

LARGEST_OUTPUT = 256 << 10
"""The bytes to search at the end of a rank's log. They are many because Python prints all stacks after the error."""


@dataclass(frozen=True)
class RankExit:
    """The end of one rank: its exit code (the negative signal if one killed it), its record, and its last log lines.

    ``output`` is a longer part of the end of its log, in which a crash may be explained.
    """

    rank: int
    exit_code: int
    time: float
    record: RankRecord | None = None
    log_tail: tuple[str, ...] = ()
    output: str = ""
