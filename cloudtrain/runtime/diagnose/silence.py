"""Finds jobs that hang, without help of their script: no rank prints, logs or does anything for `Settings.hang_after`.

Every host measures the resources that its ranks use (`sampling.idleness`), and reports to the leader when none of them
has printed or logged anything for that time. When all hosts of the job have done so, the leader takes the stacks of all
ranks and judges them together (`JobWatch`). It is not a hang if a rank compiles for hours while the others wait for it.

The functions do no input or output, and take the time as an argument.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any, Callable, Protocol

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import Fields, is_count
from cloudtrain.observe.hanging import SCRIPT, STORAGE, Hanging
from cloudtrain.observe.stacks import show_ranks
from cloudtrain.runtime.diagnose import hangs
from cloudtrain.runtime.diagnose.hangs import Place
from cloudtrain.runtime.sampling.idleness import PAUSED, PAUSED_SECONDS, UNKNOWN, pause

PRINTED, LOGGED, BEAT = "printed a line", "logged a value", "sent a heartbeat"
"""The kinds of output of a rank, as predicates in messages."""


@dataclass(frozen=True)
class Silence:
    """The report of a host whose ranks have not printed or logged anything for long, or have resumed doing so."""

    seconds: float
    idle: Mapping[int, float]
    """The host's ranks that have not ended, with the seconds for which each has done nothing."""
    heard: str = ""
    """The kind of the last output of any rank: `PRINTED`, `LOGGED` or `BEAT`."""
    signs: Mapping[int, str] = field(default_factory=dict)
    """The last sign of life of the host's ranks: see `IdleMeter.signs`."""

    def to_message(self) -> dict[str, Any]:
        ranks = [(rank, seconds, self.signs.get(rank, "")) for rank, seconds in self.idle.items()]
        return {"type": "silent", "seconds": self.seconds, "heard": self.heard, "ranks": ranks}

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> Silence:
        """The inverse of `to_message`. Raises ValueError or TypeError for anything else."""
        given = Fields(message)
        ranks = given.items("ranks")
        idle = {rank: float(seconds) for rank, seconds, _ in ranks}
        if not all(map(is_count, idle)):
            raise ValueError("the ranks of a host are not numbers")
        signs = {rank: str(sign) for rank, _, sign in ranks if sign}
        return cls(given.number("seconds", least=0), idle, given.text("heard", ""), signs)


class Heard(Protocol):
    """A kind of output of ranks."""

    @property
    def heard(self) -> float:
        """The time of the last output, on the clock of `time.monotonic`; 0 if there was none."""


class SilenceWatch:
    """Decides when a host has to report its silence to the leader.

    Args:
        limit: see `Settings.hang_after`; 0 for never.
        began: the time of the launch of the ranks, on the clock of `time.monotonic`.
        outputs: the outputs of ranks, by their kinds, such as `PRINTED`.
    """

    def __init__(self, limit: float, began: float, outputs: Mapping[str, Heard]) -> None:
        self._limit = limit
        self._pause = pause(limit)
        self._outputs = outputs
        self._looked_at = self._resumed_at = began
        """When `look` last checked this host, and when the host last resumed after a pause."""
        self._is_silent = False

    def look(
        self,
        now: float,
        idle: Callable[[], Mapping[int, float]],
        ended: Container[int] = (),
        signs: Callable[[], Mapping[int, str]] = dict,
    ) -> Silence | None:
        """The report of this host's silence, if it is due. Call this at least once a second.

        Args:
            now: the time on the clock of `time.monotonic`.
            idle, signs: see `Silence`.
            ended: the ranks that have ended.
        """
        late = now - self._looked_at
        if not self._limit or late < self._pause:
            return None
        if late > self._pause + PAUSED_SECONDS:
            self._resumed_at = now
        self._looked_at = now
        last, heard = max((output.heard, does) for does, output in self._outputs.items())
        if self._resumed_at > last:
            last, heard = self._resumed_at, PAUSED
        seconds = now - last
        was_silent, self._is_silent = self._is_silent, seconds >= self._limit
        if not (was_silent or self._is_silent):
            return None
        still = {rank: found for rank, found in idle().items() if rank not in ended}
        return Silence(seconds, still, heard, signs())


@dataclass
class JobWatch:
    """The silence of all hosts, for the leader.

    Args:
        hosts: the hosts that have ranks.
        limit: see `Settings.hang_after`; 0 if a job never counts as hanging.
    """

    hosts: Sequence[str]
    limit: float
    _silent: dict[str, tuple[float, Silence]] = field(default_factory=dict)
    """The last report of each host, with its time of arrival."""
    _looked_at: float | None = None
    hanging: Hanging | None = None
    """The hang that was found and is not over."""
    _seen: dict[int, tuple[Place, str]] | None = None
    """The places of ranks that need a second look."""
    _still: list[int] = field(default_factory=list)
    """The ranks that did nothing when the hang was found."""
    _heard: str = ""
    """The last output of a rank, with its host, as text."""

    def add(self, host: str, now: float, silence: Silence) -> None:
        if silence.seconds < self.limit:
            self._heard = f"a rank on {host} {silence.heard}"
            self._silent.pop(host, None)
            self._looked_at = self._seen = None
        elif host in self.hosts:
            self._silent[host] = now, silence

    def is_due(self, now: float) -> bool:
        """Whether to take the stacks of all ranks, because all are silent and at least one of them does nothing."""
        fresh = [now - at < 3 * pause(self.limit) + PAUSED_SECONDS for at, _ in self._silent.values()]
        if not self.limit or len(fresh) < len(self.hosts) or not all(fresh) or self.hanging:
            return False
        if not any(
            seconds >= self.limit for _, found in self._silent.values() for seconds in found.idle.values()
        ):
            return False
        wait = self.limit if self._seen is None else pause(self.limit)
        if self._looked_at is not None and now - self._looked_at < wait:
            return False
        self._looked_at = now
        return True

    def forget_look(self) -> None:
        """Allow the next look immediately, because the stacks could not be taken."""
        self._looked_at = None

    @property
    def sign(self) -> str:
        """The sign of life that ended the hang, such as ``rank 1 on algo-1 printed a line``; empty without one."""
        if self.hanging is None:
            return ""
        if len(self._silent) < len(self.hosts):
            return self._heard
        for host, (_, found) in self._silent.items():
            for rank, seconds in found.idle.items():
                if rank in self._still and seconds < self.limit:
                    return f"rank {rank} on {host} {found.signs.get(rank, UNKNOWN)}"
        return ""

    @property
    def _idle(self) -> dict[int, float]:
        return {rank: seconds for _, found in self._silent.values() for rank, seconds in found.idle.items()}

    def host_of(self, rank: int) -> str:
        return next((host for host, (_, found) in self._silent.items() if rank in found.idle), "")

    def judge(self, places: Mapping[int, tuple[Place, str]], ended: Sequence[int] = ()) -> Hanging | None:
        """The hang that the stacks of all ranks show, which becomes `hanging`; None if a rank still works.

        Args:
            places: the place of each rank, and its stack as text.
            ended: ranks that have ended with exit code 0.
        """
        idle = self._idle
        waits = [rank for rank, (place, _) in places.items() if place.kind == hangs.COLLECTIVE]
        works = [rank for rank, seconds in idle.items() if seconds < self.limit and rank not in waits]
        only = {rank: place for rank, (place, _) in places.items() if rank in idle}
        unknown = places.keys() - idle.keys() - {*ended}  # ranks whose signs of life cannot be read
        if not only or works or unknown:
            return None
        if any(seconds < self.limit for seconds in idle.values()) and not self._is_confirmed(places):
            return None
        in_storage = [rank for rank, place in only.items() if place.kind == hangs.STORAGE]
        if in_storage:
            return self._found(in_storage, places, STORAGE)
        verdict = hangs.judge(only, ended)
        if verdict is None:
            return self._found(_odd(only), places)
        if not only.keys() >= {*verdict.ranks}:
            message = f"{_who(verdict.ranks)} ended with exit code 0, and the others wait in a collective"
            return self._found(only, places, message=message)
        unseen = sorted(idle.keys() - places.keys())
        if len(verdict.ranks) == len(only) and unseen:
            message = f"{_who(unseen)} did not show a stack, and the others wait in a collective"
            return self._found(only, places, message=message)
        if len(verdict.ranks) == len(only) > 1:
            return self._found(only, places, message=f"{verdict.why}. It is unclear which rank is the cause")
        return self._found(verdict.ranks, places, others=f", while {verdict.why}")

    def _is_confirmed(self, places: Mapping[int, tuple[Place, str]]) -> bool:
        """Whether ranks that use a processor or GPU really wait: they were in the same calls at the last look."""
        before, self._seen = self._seen, None
        if before is None:
            self._seen = dict(places)
        return before == places

    def _found(
        self,
        ranks: Iterable[int],
        places: Mapping[int, tuple[Place, str]],
        cause: str = SCRIPT,
        others: str = "",
        message: str = "",
    ) -> Hanging:
        ranks = sorted(ranks)
        place, stack = places[ranks[0]]
        host = self.host_of(ranks[0])
        are, wait = ("is", "waits") if len(ranks) == 1 else ("are", "wait")
        if place.call and not stack:
            does = f": {place.call}"  # the state of a rank that shows no stack
        else:
            does = (
                f" {f'{wait} for storage' if cause == STORAGE else are} in {place.call or 'an unknown place'}"
            )
        self._still = [rank for rank, seconds in self._idle.items() if seconds >= self.limit]
        self.hanging = Hanging(
            ranks=show_ranks(ranks),
            rank=ranks[0],
            count=len(ranks),
            host=host,
            cause=cause,
            where=place.call,
            message=message or f"{_who(ranks)}{f' on {host}' * (len(ranks) == 1)}{does}{others}",
            stack=stack,
            seconds=round(max(found.seconds for _, found in self._silent.values()), 1),
        )
        return self.hanging


def _who(ranks: Sequence[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {show_ranks(ranks)}"


def _odd(places: Mapping[int, Place]) -> list[int]:
    """The ranks in the place that the fewest ranks share; all if no place has fewer ranks than another."""
    counts = Counter(place.call for place in places.values())
    (_, most), *rest = counts.most_common()
    if not rest or rest[-1][1] == most:
        return [*places]
    return [rank for rank, place in places.items() if counts[place.call] == rest[-1][1]]
