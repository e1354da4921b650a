"""Variables that a launcher sets and a job without a distribution does not have."""

from __future__ import annotations

from cloudtrain.runtime.hints.table import Hint

_NO_RANKS = (
    "A job without distribution has none: its script runs once on each "
    "host, as python train.py does. Start ranks with --torchrun or --processes-per-host N (distribution in a job file)."
)
_START_RANKS = "{variable} is set by a launcher of ranks. " + _NO_RANKS

HINTS = (
    Hint(
        "KeyError: 'RANK'",
        r"^KeyError: '(?P<variable>(?:LOCAL_|GROUP_)?(?:RANK|WORLD_SIZE)|MASTER_ADDR|MASTER_PORT)'(?m:$)",
        _START_RANKS,
        traceback=r'os(?:\.py|>)", line \d+, in __getitem__',
    ),
    Hint(
        "KeyError: 'OMPI_COMM_WORLD_RANK'",
        r"^KeyError: 'OMPI_COMM_WORLD_RANK'(?m:$)",
        "DeepSpeed found no variable RANK. " + _NO_RANKS,
        traceback=r"deepspeed.*, in patch_aws_sm_env_for_torch_nccl_backend",
    ),
    Hint(
        "ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK expected, "
        "but not set",
        r"^ValueError: Error initializing torch\.distributed using env:// rendezvous: environment variable "
        r"(?P<variable>\w+) expected, but not set",
        _START_RANKS,
    ),
)
