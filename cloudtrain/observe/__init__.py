"""The records of a job: events, metrics, heartbeats."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.observe.checkpointing import commits as commits, committing as committing
    from cloudtrain.observe.data_wait import loading_data as loading_data
    from cloudtrain.observe.events import (
        EventLog as EventLog,
        parse_event as parse_event,
        parse_events as parse_events,
        read_events as read_events,
    )
    from cloudtrain.observe.goodput import Goodput as Goodput
    from cloudtrain.observe.heartbeat import beat as beat
    from cloudtrain.observe.progress import own_progress as own_progress, report_step as report_step
    from cloudtrain.observe.samples import GpuSample as GpuSample, Sample as Sample
    from cloudtrain.observe.summary import Summary as Summary, summarize as summarize

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.observe.checkpointing": "commits committing",
        "cloudtrain.observe.data_wait": "loading_data",
        "cloudtrain.observe.events": "EventLog parse_event parse_events read_events",
        "cloudtrain.observe.goodput": "Goodput",
        "cloudtrain.observe.heartbeat": "beat",
        "cloudtrain.observe.progress": "own_progress report_step",
        "cloudtrain.observe.samples": "GpuSample Sample",
        "cloudtrain.observe.summary": "Summary summarize",
    },
)
