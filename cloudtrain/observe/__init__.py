"""The records of a job: events, metrics, heartbeats."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.observe.checkpointing import commits, committing
    from cloudtrain.observe.events import EventLog, parse_events, read_events
    from cloudtrain.observe.heartbeat import beat
    from cloudtrain.observe.summary import Summary, summarize

__getattr__, __dir__ = lazy(
    __name__,
    {
        "EventLog": "cloudtrain.observe.events",
        "Summary": "cloudtrain.observe.summary",
        "beat": "cloudtrain.observe.heartbeat",
        "commits": "cloudtrain.observe.checkpointing",
        "committing": "cloudtrain.observe.checkpointing",
        "parse_events": "cloudtrain.observe.events",
        "read_events": "cloudtrain.observe.events",
        "summarize": "cloudtrain.observe.summary",
    },
)

__all__ = ["EventLog", "Summary", "beat", "commits", "committing", "parse_events", "read_events", "summarize"]
