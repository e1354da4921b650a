"""The records that a job leaves: events, metrics, signs of life."""

from cloudtrain.observe.events import EventLog, parse_events, read_events
from cloudtrain.observe.heartbeat import beat

__all__ = ["EventLog", "beat", "parse_events", "read_events"]
