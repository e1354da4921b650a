"""The records of a job: events, metrics, heartbeats."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.observe.checkpointing import commits, committing
    from cloudtrain.observe.events import EventLog, parse_event, parse_events, read_events
    from cloudtrain.observe.goodput import Goodput, goodput_of
    from cloudtrain.observe.heartbeat import beat
    from cloudtrain.observe.progress import own_progress, report_step
    from cloudtrain.observe.summary import Summary, summarize

__getattr__, __dir__ = lazy(
    __name__,
    {
        "EventLog": "cloudtrain.observe.events",
        "Goodput": "cloudtrain.observe.goodput",
        "Summary": "cloudtrain.observe.summary",
        "beat": "cloudtrain.observe.heartbeat",
        "commits": "cloudtrain.observe.checkpointing",
        "committing": "cloudtrain.observe.checkpointing",
        "goodput_of": "cloudtrain.observe.goodput",
        "parse_event": "cloudtrain.observe.events",
        "parse_events": "cloudtrain.observe.events",
        "own_progress": "cloudtrain.observe.progress",
        "read_events": "cloudtrain.observe.events",
        "report_step": "cloudtrain.observe.progress",
        "summarize": "cloudtrain.observe.summary",
    },
)

__all__ = [
    "EventLog",
    "Goodput",
    "Summary",
    "beat",
    "commits",
    "committing",
    "goodput_of",
    "own_progress",
    "parse_event",
    "parse_events",
    "read_events",
    "report_step",
    "summarize",
]
