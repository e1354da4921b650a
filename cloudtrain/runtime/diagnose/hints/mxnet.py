"""Scripts for MXNet 2 that run with MXNet 1."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

HINTS = (
    Hint(
        "AttributeError: module 'mxnet' has no attribute 'device'",
        r"^AttributeError: module 'mxnet(?:' has no attribute 'device'"
        r"|\.gluon' has no attribute '(?:metric|probability)')",
        "The script is written for MXNet 2, of which there are only beta releases. Take its version for MXNet 1 (in "
        "MXNet's repository, the branch v1.9.x), or write mx.context for mx.device and mx.metric for gluon.metric.",
    ),
)
