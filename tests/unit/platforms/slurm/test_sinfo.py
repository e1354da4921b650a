"""The output of ``sinfo`` and ``scontrol``, in several versions of Slurm and on several clusters."""

from __future__ import annotations

import pytest

from cloudtrain.platforms.slurm.time_limits import (
    gpu_counts,
    parse_configuration,
    parse_partitions,
    seconds_of,
)

SINFO = """cpu*|up|1-00:00:00|40|(null)
gpu|up|2-00:00:00|8|gpu:a100:8(S:0-1),nvme:1
gpu|up|2-00:00:00|2|gpu:h100:4(S:0)
old|drain|infinite|3|gpu:2(S:0-1)
slurm_load_partitions: Unable to contact slurm controller
"""

CONFIGURATION = """Configuration data as of 2026-11-22T10:00:00
AccountingStorageType   = accounting_storage/slurmdbd
JobRequeue              = 1
PreemptMode             = REQUEUE,GANG
MinJobAge               = 300 sec
SLURM_CONF              = /etc/slurm/slurm.conf

Slurmctld(primary) at head is UP
"""


def test_partitions() -> None:
    cpu, gpu, old = parse_partitions(SINFO)
    assert (cpu.name, cpu.is_default, cpu.is_up, cpu.nodes, cpu.limit) == (
        "cpu",
        True,
        True,
        40,
        "1-00:00:00",
    )
    assert (gpu.nodes, gpu.is_default) == (10, False)
    assert gpu_counts(gpu.gres) == {"a100": 8, "h100": 4}
    assert gpu_counts(cpu.gres) == {}
    assert gpu_counts(old.gres) == {"": 2}
    assert not old.is_up
    assert old.described() == "old has 3 nodes, no time limit"
    assert gpu_counts(("gpu:nvidia_a100_1g.5gb:7(S:0),gpu:a100:1",)) == {"nvidia_a100_1g.5gb": 7, "a100": 1}


def test_configuration() -> None:
    found = parse_configuration(CONFIGURATION)
    assert (found["PreemptMode"], found["JobRequeue"], found["MinJobAge"]) == ("REQUEUE,GANG", "1", "300 sec")


@pytest.mark.parametrize(
    ("limit", "seconds"),
    [("1-02:00:00", 93600), ("30:00", 1800), ("1:00:00", 3600), ("infinite", None), ("n/a", None)],
)
def test_time_limits(limit: str, seconds: float | None) -> None:
    assert seconds_of(limit) == seconds
