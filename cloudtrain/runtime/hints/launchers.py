"""Variables that a launcher sets and a job without a distribution does not have."""

from __future__ import annotations

from cloudtrain.runtime.hints.table import Hint

_START_RANKS = (
    "{variable} is set by a launcher of ranks. A job without distribution has none: its script runs once on each "
    "host, as python train.py does. Start ranks with --torchrun or --processes-per-host N (distribution in a job file)."
)

HINTS = (
    Hint(
        "KeyError: 'RANK'",
        r"^KeyError: '(?P<variable>(?:LOCAL_|GROUP_)?(?:RANK|WORLD_SIZE)|MASTER_ADDR|MASTER_PORT)'(?m:$)",
        _START_RANKS,
        traceback=r'os(?:\.py|>)", line \d+, in __getitem__',
    ),
    Hint(
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
        "but not set",
        r"^ValueError: Error initializing torch\.distributed using env:// rendezvous: environment variable "
        r"(?P<variable>\w+) expected, but not set",
        _START_RANKS,
    ),
)
