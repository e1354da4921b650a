"""``logs``: the lines that the ranks of a job print, those of all hosts merged."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing

from cloudtrain.observe.event_lines import parse_event_line
from cloudtrain.platforms.kubernetes.api.kinds import MPI_JOB
from cloudtrain.platforms.kubernetes.life.objects import text as text_at
from cloudtrain.platforms.kubernetes.logs.events import is_leader, may_be_event
from cloudtrain.platforms.kubernetes.logs.lines import Line
from cloudtrain.platforms.kubernetes.logs.pod_log import LogApi
from cloudtrain.platforms.kubernetes.logs.reader import Chosen, Watch, follow_logs, read_logs
from cloudtrain.platforms.kubernetes.logs.sources import SourceState

_RANK = re.compile(r"\[rank \d+\] ")


def logs(api: LogApi, watch: Watch, *, follow: bool) -> Generator[str, None, None]:
    """The lines of all hosts in the order of their times, each with its rank, or else its host, as prefix.

    Lines that are events of the runtime are left out. The launcher of an MPIJob also has the lines of its workers,
    whose pods are deleted when it ends: only its log is read.

    Raises:
        PlatformError: the credentials do not permit reading logs, or the API server does not answer.
    """
    objects = watch.known()
    choose = is_leader if text_at(objects.owner, "kind") == MPI_JOB.kind else _is_any
    if follow:
        found = follow_logs(api, watch, choose=choose, wants=_is_shown)
    else:
        found = read_logs(api, objects, choose=choose, wants=_is_shown)
    with closing(found):  # ends the connections as soon as the caller leaves
        yield from map(shown, found)


def shown(found: Chosen) -> str:
    """A line as users see it."""
    source, line = found
    text = line.text.decode("utf-8", "backslashreplace")
    if "\r" in text:  # a progress bar overwrites its line
        text = text.rstrip("\r").rpartition("\r")[2]
    return text if _RANK.match(text) else f"[{source.host}] {text}"


def _is_any(state: SourceState) -> bool:
    return True


def _is_shown(line: Line) -> bool:
    return not may_be_event(line) or parse_event_line(line.text, "") is None
