"""Channels and variables of the contract that the script expects and the job does not have."""

from __future__ import annotations

from cloudtrain.contract import FailureClass
from cloudtrain.runtime.diagnose.hints.table import Hint

_VARIABLE = r"^KeyError: '(?P<channel_variable>SM_CHANNEL_[A-Z0-9_]+)'(?m:$)"

HINTS = (
    Hint(
        "KeyError: 'SM_CHANNEL_TRAIN'",
        _VARIABLE,
        "The script reads {absent_channel}, but the job has no such channel. Its channels: {channels}. Name the "
        "channel after the variable: SM_CHANNEL_TRAIN is the channel train (--input train=URI, or inputs).",
        failure_class=FailureClass.MISSING_DATA,
    ),
    Hint(
        "KeyError: 'SM_CHANNEL_TRAIN'",
        _VARIABLE,
        "The script reads {absent_channel}, but the job has no such channel. Name the channel after the variable: "
        "SM_CHANNEL_TRAIN is the channel train (--input train=URI, or inputs).",
        failure_class=FailureClass.MISSING_DATA,
    ),
    Hint(
        "KeyError: 'SM_HP_EPOCHS'",
        r"^KeyError: '(?P<variable>SM_HP_[A-Z0-9_]+)'(?m:$)",
        "The script reads {variable}, but the job has no such hyperparameter. SM_HP_EPOCHS is the hyperparameter "
        "epochs: set it, or read it with os.environ.get.",
    ),
)
