"""The last steps of timelines that are still being recorded, from a small part of each file, however large it is."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from cloudtrain._system.safe_open import Beneath

if TYPE_CHECKING:
    from cloudtrain.observe.timeline.steps import RankStep

TAIL = 1 << 17
"""Bytes that are read at the end of a file."""
MOST_HOSTS, MOST_FILES = 4, 4
"""The first hosts, and the first files of each of them, are read."""


def exposed_share(place: str) -> float | None:
    """The share of the last steps, from 0 to 1, in which ranks have waited for communication.

    Args:
        place: the folder of a job on this machine. Its script may have put anything there.

    Returns None if there is no timeline with a whole step.
    """
    steps = [step for host in _hosts(place) for step in _steps_of_host(host)]
    total = sum(step.total for step in steps)
    return sum(step.exposed for step in steps) / total if total > 0 else None


def _hosts(place: str) -> list[Path]:
    with contextlib.suppress(OSError):
        return sorted(islice(Path(place, "hosts").glob("*"), MOST_HOSTS))
    return []


def _steps_of_host(host: Path) -> Iterator[RankStep]:
    with contextlib.suppress(OSError), Beneath(host) as base, base.inside("output/data/timeline") as folder:
        files = (found for found in folder.contents() if found.is_file and found.key.endswith(".json"))
        for found in islice(files, MOST_FILES):
            from cloudtrain.observe.timeline.steps import find_steps  # slow to import, and few jobs have one
            from cloudtrain.observe.timeline.traces import Trace

            with folder.open(found.key) as file:
                trace = Trace(host, 0, 0, _last_events(file), is_profile=False)
            with contextlib.suppress(LookupError, TypeError, ValueError, AttributeError):  # it may be forged
                steps = [step for whole in find_steps([trace]) for step in whole.ranks]
                yield from steps[1:] or steps  # the beginning of the first one may be missing


def _last_events(file: BinaryIO) -> list[Any]:
    file.seek(0, 2)
    file.seek(max(file.tell() - TAIL, 0))
    events = []
    for line in file.read(TAIL).splitlines()[1:]:  # the first one may have been cut
        with contextlib.suppress(ValueError):
            events.append(json.loads(line.rstrip(b",")))
    return [event for event in events if isinstance(event, dict) and "ts" in event]
