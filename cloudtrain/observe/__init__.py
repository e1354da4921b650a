"""The records that a job leaves: events, metrics, signs of life."""

from cloudtrain.observe.events import EventLog, parse_events, read_events
from cloudtrain.observe.heartbeat import beat
from cloudtrain.observe.summary import Summary, summarize

__all__ = ["EventLog", "Summary", "beat", "parse_events", "read_events", "summarize"]
