"""The variable without which Hugging Face's libraries let every rank on CPUs train alone."""

from __future__ import annotations

import glob
from collections.abc import Sequence

ACCELERATORS = (
    "/dev/kfd",  # AMD
    "/dev/neuron[0-9]*",
    "/dev/accel*",  # Gaudi, and TPUs
    "/dev/vfio/[0-9]*",  # TPUs
    "/dev/davinci[0-9]*",  # Ascend
    "/dev/cambricon_dev[0-9]*",
    "/dev/musa*",
    "/usr/lib*/libze_loader.so*",  # Intel: every laptop has its device, but only a host that computes has this
    "/usr/lib*/*/libze_loader.so*",
)
"""Files of a host with accelerators other than NVIDIA's."""


def cpu_variables(ranks: int, gpus: int, accelerators: Sequence[str] = ACCELERATORS) -> dict[str, str]:
    """``ACCELERATE_USE_CPU`` for several ranks on hosts without accelerators.

    Accelerate, and so the Trainer of Transformers, connects ranks on CPUs only on request. Otherwise, each rank is
    rank 0 of 1, trains on all the data, and overwrites the files of the others.

    Args:
        ranks: their number on all hosts.
        gpus: NVIDIA's, those of this host that a rank would see.
        accelerators: patterns of files, one of which a host with other accelerators has.
    """
    if ranks < 2 or gpus or any(glob.glob(pattern) for pattern in accelerators):
        return {}
    return {"ACCELERATE_USE_CPU": "true"}
