"""The stacks of a job's ranks at one moment, grouped by equal stack.

The leader reports them as events: one for each group (``stacks``), then one for all (``stacks-taken``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, fields, replace
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import Fields

GROUP, TAKEN = "stacks", "stacks-taken"
"""The kinds of events."""

MOST_GROUPS = 48
"""The most groups that are reported. If there are more, those with the most members are only counted."""
LONGEST_STACK = 2200
"""Characters of a stack: an event is a line of at most `event_lines.LONGEST` bytes."""
LONGEST_RANKS = 160
"""Characters of the ranks of a group."""
MOST_NAMES = 8
"""The most hosts that are named."""
LONGEST_NAME = 200
"""Characters of a short text in an event, which a script may have forged."""


@dataclass(frozen=True)
class StackGroup:
    """Ranks with the same stack, or processes that ranks have started."""

    ranks: str
    """The ranks, such as ``0-6,8-1023``. A long list ends with an ellipsis; ``count`` is exact."""
    count: int
    """The number of ranks, or of processes of ranks."""
    where: str = ""
    """The innermost call, and the line of the script that led to it: ``wait at train.py:41``; empty without a stack."""
    stack: str = ""
    """A line for each call of the main thread, the innermost first."""
    state: str = ""
    """Why there is no stack, or no recent one, such as ``stopped by a signal``."""
    process: str = ""
    """The name of the processes that the ranks have started; empty for the ranks themselves."""
    hosts: tuple[str, ...] = ()
    """The hosts of these ranks, at most `MOST_NAMES`."""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Any) -> StackGroup:
        """Raises ValueError unless ``record`` has the fields of a group; other fields are ignored."""
        given = Fields(record)
        texts = {
            name: given.text(name, "")[:LONGEST_STACK] for name in ("where", "stack", "state", "process")
        }
        hosts = _names(given, "hosts")
        return cls(given.text("ranks")[:LONGEST_NAME], given.integer("count", least=1), hosts=hosts, **texts)


@dataclass(frozen=True)
class StackDump:
    """The stacks of all ranks at one moment."""

    id: str
    """Unique among the dumps of the job."""
    time: float = 0.0
    """When the dump was complete, in seconds since the epoch."""
    ranks: int = 0
    """The number of ranks that were inspected."""
    groups: tuple[StackGroup, ...] = ()
    """The groups of ranks, then those of other processes; in both, the smallest group first."""
    more: int = 0
    """The number of groups that are not reported."""
    silent: tuple[str, ...] = ()
    """The hosts that did not answer in time, at most `MOST_NAMES`."""
    native: bool = False
    """Whether native frames were requested."""
    why: str = ""
    """Why the runtime took them by itself, such as before it ended ranks that hang; empty if they were requested."""

    def to_dict(self) -> dict[str, Any]:
        """As data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, record: Any) -> StackDump:
        """The inverse of `to_dict`, also for the fields of an event. Raises ValueError for anything else."""
        given = Fields(record)
        groups = tuple(StackGroup.from_dict(group) for group in given.items("groups", ())[:MOST_GROUPS])
        return cls(
            given.text("id")[:LONGEST_NAME],
            given.time("time", 0.0),
            given.integer("ranks", 0),
            groups,
            given.integer("more", 0),
            _names(given, "silent"),
            given.boolean("native", False),
            given.text("why", "")[:LONGEST_NAME],
        )


def _names(given: Fields, name: str) -> tuple[str, ...]:
    return tuple(host[:LONGEST_NAME] for host in given.texts(name, ())[:MOST_NAMES])


@dataclass
class StackReader:
    """The last complete dump among the events of a job."""

    last: StackDump | None = None
    pending: StackDump | None = None
    """A dump of which not all groups have arrived."""

    def add(self, event: dict[str, Any]) -> None:
        """Add the next event of one of the kinds above. Raises ValueError, and changes nothing, for any other."""
        name = Fields(event).text("id")[:LONGEST_NAME]
        groups = self.pending.groups if self.pending and self.pending.id == name else ()
        if event["event"] == GROUP:
            group = StackGroup.from_dict(event)
            self.pending = StackDump(name, groups=(*groups, group)[:MOST_GROUPS])
        else:
            dump = StackDump.from_dict({**event, "groups": ()})
            self.last, self.pending = replace(dump, groups=groups), None

    def to_dict(self) -> dict[str, Any]:
        return {
            field.name: dump and dump.to_dict()
            for field in fields(self)
            for dump in [getattr(self, field.name)]
        }

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> StackReader:
        """The inverse of `to_dict`. Raises ValueError, TypeError or KeyError."""
        return cls(**{name: dump and StackDump.from_dict(dump) for name, dump in record.items()})


def show_ranks(ranks: Iterable[int]) -> str:
    """Ranks as ranges.

    >>> show_ranks([3, 0, 1, 2, 7])
    '0-3,7'
    """
    parts: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if parts and parts[-1][1] == rank - 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    text = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)
    return text if len(text) <= LONGEST_RANKS else f"{text[:LONGEST_RANKS].rpartition(',')[0]},…"
