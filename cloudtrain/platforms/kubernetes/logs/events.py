"""``events`` and ``metrics``: what the leader of a job prints about it, between the lines of its ranks.

Every other host prints such lines, too. The leader's show the progress of the job.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.observe.events import MARK, Event
from cloudtrain.platforms.base import Series
from cloudtrain.platforms.kubernetes.logs.lines import Line
from cloudtrain.platforms.kubernetes.logs.pod_log import LogApi, Source
from cloudtrain.platforms.kubernetes.logs.reader import Chosen, Watch, follow_logs, read_logs
from cloudtrain.platforms.kubernetes.logs.sources import SourceState

_MARK = MARK.encode()


class EventReader:
    """Turns lines of leaders into events. A new pod of the leader is a new attempt, which has an event too."""

    def __init__(self) -> None:
        self._pods: dict[str, int] = {}

    def events(self, found: Iterable[Chosen]) -> Iterator[Event]:
        """The events in lines, in their order."""
        for source, line in found:
            event = self._parse(source, line)
            if event is not None:
                yield from self._attempt(source, event)
                yield event

    def _parse(self, source: Source, line: Line) -> Event | None:
        return parse_event_line(line.text, source.host, None if line.time is None else line.time / 1e9)

    def _attempt(self, source: Source, event: Event) -> Iterator[Event]:
        if source.uid not in self._pods:
            number = self._pods[source.uid] = len(self._pods)
            yield {"time": event["time"], "source": source.host, "event": "attempt", "attempt": number}


def events(api: LogApi, watch: Watch, *, follow: bool) -> Generator[dict[str, Any], None, None]:
    """The events of the job, in the order in which they were printed.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server does not answer.
    """
    found = (
        follow_logs(api, watch, choose=is_leader, wants=may_be_event)
        if follow
        else read_logs(api, watch.known(), choose=is_leader, wants=may_be_event)
    )
    with closing(found):
        yield from EventReader().events(found)


def metrics(api: LogApi, watch: Watch) -> Series:
    """All values of each metric that were printed: at most one a second. Raises PlatformError."""
    found: dict[str, list[tuple[float, float]]] = {}
    for event in events(api, watch, follow=False):
        if event["event"] == "metric":
            found.setdefault(event["name"], []).append((event["time"], event["value"]))
    return found


def is_leader(state: SourceState) -> bool:
    return state.is_leader


def may_be_event(line: Line) -> bool:
    return line.text.startswith(_MARK)
