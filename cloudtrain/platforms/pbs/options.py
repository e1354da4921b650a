"""``platform_options`` of PBS Professional, Torque and Cobalt."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from cloudtrain.platforms.batch.render import WORD, BatchOptions

ONLY = {"select": "pbs", "place": "pbs", "project": "pbs", "nodes": "torque", "attrs": "cobalt"}
"""The options that one of the three has."""

LACKS = {"cobalt": ("cpus", "gpus", "gpu_type", "mem")}
"""The options that others have: Cobalt gives whole nodes."""


class PbsOptions(BatchOptions, frozen=True, forbid_unknown_fields=True):
    """The options of a job on PBS Professional, OpenPBS, Torque or Cobalt.

    The defaults of the queue apply to everything that is not given here.
    """

    account: WORD | None = None
    select: WORD | None = None
    place: WORD | None = None
    nodes: WORD | None = None
    attrs: dict[WORD, str | int] = field(default_factory=dict)
    start: Literal["auto", "srun", "pbsdsh", "ssh", "aprun"] = "auto"
