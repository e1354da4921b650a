"""Finds ranks that hang because they send no heartbeat, and among them the one for which the others wait.

Each host watches its own ranks. If one of them is silent for too long, the leader collects the stacks and positions
of all ranks from all hosts, and names the rank for which the others wait.
"""

from __future__ import annotations

import itertools
import re
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Callable, NamedTuple

from cloudtrain._system.patterns import pattern
from cloudtrain.contract import FailureClass, FailureReport, RankSlot
from cloudtrain.contract.documents import Fields, is_count, is_number
from cloudtrain.observe import heartbeat, steady
from cloudtrain.runtime.run_folder import heartbeat_path

if TYPE_CHECKING:
    from cloudtrain.runtime.diagnose.tracers import Frame

_RANK = pattern(r"^rank (\d+):$", re.MULTILINE)

_COLLECTIVE = pattern(
    r"/torch/distributed/(?!checkpoint/|elastic/)|/torch/nn/parallel/distributed\.py$|/cloudtrain/distributed/"
    r"|/horovod/|/mpi4py/|/tensorflow/python/distribute/"
)
"""Files whose functions wait for other ranks."""
_BETWEEN = pattern(r"/cloudtrain/observe/|/torch/autograd/function\.py$")
"""Files whose functions both call those functions and are called by them, to record or differentiate the calls."""
_QUERY = pattern(r"_?(?:get|is)_\w+|rank|size|local_rank|local_size|rank_not_in_group")
"""Functions in these files that do not wait, so that a rank that computes may be in one of them."""
_DECORATOR = pattern(r"c10d_logger\.py$|/cloudtrain/distributed/_api\.py$")
_BACKWARD = pattern(r"/torch/autograd/")
"""Hooks of DDP and FSDP wait for other ranks in the backward pass, in native code. A rank may also compute there."""
_NATIVE = pattern(r"\.so(?:\.\d+)*$|\.(?:c|cc|cpp|cu|cxx|h|hpp|rs)$")
_STANDARD = pattern(r"/lib/python3[.\d]*/(?!site-packages/|dist-packages/)|^<frozen ")

_STORAGE = pattern(
    r"/cloudtrain/(?:checkpoint|storage)/|/(?:botocore|boto3|s3transfer|s3fs|gcsfs|fsspec|obstore|smart_open)/"
    r"|/google/cloud/storage/"
)
"""Files whose functions wait for storage."""
_BELOW_THE_SCRIPT = pattern(
    r"/(?:site|dist)-packages/|/cloudtrain/(?:checkpoint|storage|distributed|observe|environment|runtime|_\w+)/"
)
"""Files of libraries. The folders are explicit because a job folder may be called cloudtrain too."""

OUTSIDE, BACKWARD, COLLECTIVE, STORAGE = range(4)


class Place(NamedTuple):
    """The place of a rank in its program."""

    kind: int
    """`OUTSIDE` of collectives, in a `BACKWARD` pass, in a `COLLECTIVE`, or waiting for `STORAGE`."""
    call: str = ""
    """The function of the collective or of the storage library, and the line of the script that calls it."""


class Verdict(NamedTuple):
    """The ranks that may be the cause, and why. If it is unclear which of them is the cause, there are several."""

    ranks: tuple[int, ...]
    why: str


def places_in(stacks: str) -> dict[int, Place]:
    """The place of each rank, from the stacks of all hosts, as `stacks_text` returned them."""
    from cloudtrain.runtime.diagnose.stacks import main_thread

    parts = _RANK.split(stacks)
    return {int(rank): place_of(main_thread(text)) for rank, text in zip(parts[1::2], parts[2::2])}


def cause_first(stacks: str, rank: int | None) -> str:
    """The stacks that `stacks_text` returned, with those of ``rank`` first, because a report may be truncated."""
    from cloudtrain.runtime.diagnose.stacks import main_thread_first

    parts = _RANK.split(stacks)
    found = list(zip(map(int, parts[1::2]), parts[2::2]))
    if rank not in dict(found):
        return stacks
    first = [(number, main_thread_first(text)) for number, text in found if number == rank]
    others = [each for each in found if each[0] != rank]
    texts = [f"rank {number}:{text}".strip("\n") for number, text in (*first, *others)]
    return parts[0] + "\n\n".join(texts) + "\n"


def place_of(stack: Iterable[Frame]) -> Place:
    """The place of a rank. ``stack`` is of the thread that runs the script, with the innermost call first."""
    frames = [frame for frame in stack if not _STANDARD.search(frame.file)]
    inner: list[Frame] = []
    while frames and (_COLLECTIVE.search(frames[0].file) or (inner and _BETWEEN.search(frames[0].file))):
        inner.append(frames.pop(0))
    if inner and _QUERY.fullmatch(inner[-1].function):
        return Place(OUTSIDE)
    if inner:
        names = [frame.function for frame in inner if not _DECORATOR.search(frame.file)]
        return Place(COLLECTIVE, f"{names[-1] if names else inner[-1].function} at {_line(frames)}")
    library = list(itertools.takewhile(lambda frame: _BELOW_THE_SCRIPT.search(frame.file), frames))
    if any(_STORAGE.search(frame.file) for frame in library):
        return Place(STORAGE, f"{library[-1].function} at {_line(frames[len(library) :])}")
    is_backward = frames and _BACKWARD.search(frames[0].file)
    return Place(BACKWARD, "a backward pass") if is_backward else Place(OUTSIDE)


def site_of(stack: Sequence[Frame]) -> str:
    """The innermost call of a stack, and the line of the script that led to it; empty for an empty stack."""
    libraries = (_STANDARD, _BELOW_THE_SCRIPT, _NATIVE)
    own = [frame for frame in stack if not any(files.search(frame.file) for files in libraries)]
    python = [frame for frame in stack if not is_native(frame)]
    return f"{stack[0].function} at {_line(own or python or stack)}" if stack else ""


def is_native(frame: Frame) -> bool:
    """Whether the call is native code, as py-spy reports it."""
    return bool(_NATIVE.search(frame.file))


def _line(frames: Sequence[Frame]) -> str:
    if not frames:
        return ""
    file, line = frames[0].file.rpartition("/")[2], frames[0].line
    return f"{file}:{line}" if line else file  # native code may have no lines


def judge(places: Mapping[int, Place], ended: Sequence[int] = ()) -> Verdict | None:
    """The ranks for which the others wait; None if no rank waits for another.

    Args:
        ended: ranks that have exited with code 0.
    """
    in_calls = [rank for rank, place in places.items() if place.kind == COLLECTIVE]
    waiting = [rank for rank, place in places.items() if place.kind in (BACKWARD, COLLECTIVE)]
    outside = tuple(sorted(places.keys() - set(waiting)))
    if waiting and outside:
        example = min(in_calls or waiting)
        return Verdict(outside, f"rank {example} waits in {places[example].call}")
    if not waiting or (len(places) == 1 and not in_calls):
        return None
    if ended:
        return Verdict(
            tuple(sorted(ended)),
            f"it has ended with exit code 0, and rank {waiting[0]} waits in a collective",
        )
    calls = Counter(places[rank].call for rank in waiting)
    shown = ", ".join(
        f"rank {next(r for r in waiting if places[r].call == call)} in {call}" for call in calls
    )
    alone = [rank for rank in waiting if calls[places[rank].call] == 1]
    if len(calls) == 2 and len(alone) == 1:
        return Verdict((alone[0],), f"the ranks wait in different collectives: {shown}")
    if len(calls) > 1:
        return Verdict(tuple(sorted(waiting)), f"the ranks wait in different collectives: {shown}")
    return Verdict(tuple(sorted(waiting)), f"all ranks wait in {shown.partition(' in ')[2]}")


GAP_SECONDS = 3.0
"""If the watchdog itself has not run for this time, its host was paused, and the limit of every rank starts over."""

HINT = "See the stacks of all ranks in the failure report: they show where each rank waits."

LogTail = Callable[[int], Sequence[str]]
"""The last lines of a rank's log."""


class Position(NamedTuple):
    """The position of a rank. Hosts send it to the leader as a JSON array."""

    rank: int
    entered: int
    """The number of collectives for which the rank has begun to wait."""
    waits: bool
    """Whether it still waits for the last of them."""
    silence: float
    """Seconds without a heartbeat."""


class Watchdog:
    """Reads the heartbeats of the ranks of one host.

    Time counts from the first heartbeat of any of them. A script that sends none is never considered hung: it may be
    loading data.

    Args:
        run: the run folder.
        limit: seconds that a rank may go without a heartbeat (``hang_timeout``); 0 for no limit.
        clock: the monotonic clock of the heartbeats.
    """

    def __init__(
        self,
        run: str,
        slots: Iterable[RankSlot],
        limit: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._run = run
        self._slots = tuple(slots)
        self._limit = limit
        self._since: float | None = None
        self._launched = self._looked = clock()

    def check(self, host: str, ended: Iterable[int], tail: LogTail) -> FailureReport | None:
        """A report if a rank has been silent for too long; None otherwise. Call this at least once a second.

        Args:
            ended: ranks that have ended.
        """
        if not self._limit:
            return None
        positions = self._positions(ended)
        if self._since is None or not any(position.silence > self._limit for position in positions):
            return None
        blamed = _suspect(positions)
        return FailureReport(
            FailureClass.HANG,
            _explain(blamed, positions, self._limit),
            HINT,
            rank=blamed.rank,
            host=host,
            phase="train",
            log_tail=tuple(tail(blamed.rank)),
            time=steady.now(),
        )

    @property
    def heard(self) -> float:
        """The time of the last heartbeat of any rank, on the clock of `time.monotonic`; 0 if there was none."""
        beats = (heartbeat.read(heartbeat_path(self._run, slot.local_rank)) for slot in self._slots)
        return max((beat.time for beat in beats if beat), default=0.0)

    def describe(self, ended: Iterable[int], tail: LogTail) -> dict[str, Any]:
        """The positions of this host's ranks, for the `Hang.add` of the leader."""
        positions = self._positions(ended)
        lines = list(tail(_suspect(positions).rank)) if positions else []
        return {"positions": positions, "limit": self._limit, "tail": lines}

    def _positions(self, ended: Iterable[int]) -> list[Position]:
        """The positions of the running ranks."""
        now = self._clock()
        running = [slot for slot in self._slots if slot.rank not in set(ended)]
        beats = {slot.rank: heartbeat.read(heartbeat_path(self._run, slot.local_rank)) for slot in running}
        first = min((beat.time for beat in beats.values() if beat), default=None)
        if self._since is None:
            self._since = first
        elif now - self._looked > GAP_SECONDS:
            self._since = now
        self._looked = now
        since = self._launched if self._since is None else self._since
        return [
            Position(rank, beat.entered, beat.waits, now - max(since, beat.time))
            if beat
            else Position(rank, 0, False, now - since)
            for rank, beat in beats.items()
        ]


class Hang:
    """The positions of the ranks of all hosts, for the leader."""

    def __init__(self) -> None:
        self._ranks: dict[int, tuple[str, Position]] = {}
        """The host and the position of each rank."""
        self._tails: dict[str, tuple[str, ...]] = {}
        self._limit = 0.0

    def add(self, host: str, message: Mapping[str, Any]) -> None:
        """Add the result of `Watchdog.describe` on a host. Raises ValueError or TypeError for anything else."""
        fields = Fields(message)
        limit, tail = fields.number("limit"), fields.texts("tail")
        positions = [Position(*values) for values in fields.items("positions")]
        if not all(is_count(p.rank) and is_count(p.entered) and is_number(p.silence) for p in positions):
            raise ValueError("the positions of the ranks are not numbers")
        for position in positions:
            self._ranks[position.rank] = host, position
        self._tails[host], self._limit = tail, limit

    def blame(
        self, report: FailureReport, places: Mapping[int, Place] | None = None, ended: Sequence[int] = ()
    ) -> FailureReport:
        """The report of a hang, completed with the rank for which the others wait.

        Args:
            places: the places of all ranks. They decide if the heartbeats are not conclusive.
            ended: ranks that have exited with code 0.
        """
        if report.failure_class != FailureClass.HANG or not self._ranks:
            return report
        changes: dict[str, Any]
        positions = [position for _, position in self._ranks.values()]
        blamed = _suspect(positions)
        message = _explain(blamed, positions, self._limit)
        verdict = None if _is_clear(positions) else judge(places or {}, ended)
        if verdict and len(verdict.ranks) > 1 and len(verdict.ranks) < len(positions):
            blamed = _suspect(position for position in positions if position.rank in verdict.ranks)
            others = ", ".join(str(rank) for rank in verdict.ranks if rank != blamed.rank)
            message = f"{_silence(blamed, self._limit)}, while {verdict.why}. So may rank {others}"
        elif verdict and len(verdict.ranks) > 1:
            message = f"{verdict.why}. It is unclear which rank is the cause"
            changes = {"rank": None, "host": None, "phase": None, "message": message, "log_tail": []}
            return FailureReport.from_dict({**report.to_dict(), **changes})
        elif verdict:
            [rank] = verdict.ranks
            if rank not in self._ranks:
                changes = {"rank": rank, "host": None, "message": verdict.why, "log_tail": []}
                return FailureReport.from_dict({**report.to_dict(), **changes})
            blamed = self._ranks[rank][1]
            message = f"{_silence(blamed, self._limit)}, while {verdict.why}"
        host, _ = self._ranks[blamed.rank]
        changes = {
            "rank": blamed.rank,
            "host": host,
            "message": message,
            "log_tail": list(self._tails[host]),
        }
        return FailureReport.from_dict({**report.to_dict(), **changes})


def _is_clear(positions: Sequence[Position]) -> bool:
    """Whether the heartbeats, which count only collectives of cloudtrain, show for which rank the others wait."""
    return any(position.waits for position in positions) and len({p[1:3] for p in positions}) > 1


def _suspect(positions: Iterable[Position]) -> Position:
    """The rank for which the others wait, among those that have been silent for long.

    A rank outside of collectives takes precedence over one that waits in a collective; then the rank that has entered
    fewer collectives, then the one that has been silent for longer.
    """
    positions = list(positions)
    longest = max(position.silence for position in positions)
    silent = [position for position in positions if position.silence >= longest / 2]
    return min(silent, key=lambda position: (position.waits, position.entered, -position.silence))


def _explain(blamed: Position, positions: Iterable[Position], limit: float) -> str:
    text = _silence(blamed, limit)
    ahead = [position.rank for position in positions if position.waits and position.entered > blamed.entered]
    if not ahead:
        return text
    if blamed.waits:
        return f"{text}: it waits in collective {blamed.entered}, rank {min(ahead)} in a later one"
    return f"{text}, while rank {min(ahead)} waits for it in a collective"


def _silence(blamed: Position, limit: float) -> str:
    return f"no heartbeat for {blamed.silence:.0f} s (hang_timeout is {limit:g} s)"
