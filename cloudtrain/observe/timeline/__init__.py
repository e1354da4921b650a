"""Timelines of the ranks' communication: recording, merging, and statistics per step.

Ranks use `recorder`. The other modules read recorded files.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.observe.timeline.clock import Offset as Offset
    from cloudtrain.observe.timeline.recorder import Timeline as Timeline
    from cloudtrain.observe.timeline.steps import RankStep as RankStep, Step as Step, find_steps as find_steps
    from cloudtrain.observe.timeline.traces import (
        Trace as Trace,
        align as align,
        merge as merge,
        read_trace as read_trace,
    )

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.observe.timeline.clock": "Offset",
        "cloudtrain.observe.timeline.recorder": "Timeline",
        "cloudtrain.observe.timeline.steps": "RankStep Step find_steps",
        "cloudtrain.observe.timeline.traces": "Trace align merge read_trace",
    },
)
