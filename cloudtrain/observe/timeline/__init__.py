"""Timelines of the ranks' communication: recording, merging, and statistics per step.

Ranks use `recorder`. The other modules read recorded files.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.observe.timeline.clock import Offset
    from cloudtrain.observe.timeline.recorder import Timeline
    from cloudtrain.observe.timeline.steps import RankStep, Step, find_steps
    from cloudtrain.observe.timeline.traces import Trace, align, merge, read_trace

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Offset": "cloudtrain.observe.timeline.clock",
        "RankStep": "cloudtrain.observe.timeline.steps",
        "Step": "cloudtrain.observe.timeline.steps",
        "Timeline": "cloudtrain.observe.timeline.recorder",
        "Trace": "cloudtrain.observe.timeline.traces",
        "align": "cloudtrain.observe.timeline.traces",
        "find_steps": "cloudtrain.observe.timeline.steps",
        "merge": "cloudtrain.observe.timeline.traces",
        "read_trace": "cloudtrain.observe.timeline.traces",
    },
)

__all__ = ["Offset", "RankStep", "Step", "Timeline", "Trace", "align", "find_steps", "merge", "read_trace"]
