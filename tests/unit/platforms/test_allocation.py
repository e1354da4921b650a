"""The hosts of an allocation, from the variables of its scheduler."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.hosts.render import HostsOptions
from cloudtrain.runtime.start.allocation import find_allocation

ENVIRONMENTS = {
    "Slurm, tasks asked for": (
        {"SLURM_JOB_NODELIST": "gpu[09-10],a1", "SLURM_TASKS_PER_NODE": "4(x2),2", "SLURM_NTASKS": "10"},
        [("gpu09", 4), ("gpu10", 4), ("a1", 2)],
    ),
    "Slurm, nodes asked for": (
        {"SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "1(x2)"},
        [("n1", None), ("n2", None)],
    ),
    "LSF, slots": ({"LSB_MCPU_HOSTS": "b 4 a 4", "LSB_HOSTS": "b b b b a a a a"}, [("b", 4), ("a", 4)]),
    "LSF, old": ({"LSB_HOSTS": "b b a a"}, [("b", 2), ("a", 2)]),
}


@pytest.mark.parametrize("case", ENVIRONMENTS)
def test_variables_of_a_scheduler(case: str) -> None:
    environ, hosts = ENVIRONMENTS[case]
    allocation = find_allocation(environ)
    assert allocation
    assert list(allocation.hosts) == hosts
    assert [(host.name, host.slots) for host in HostsOptions().named_hosts(environ)] == hosts


@pytest.mark.parametrize("variable", ["PBS_NODEFILE", "COBALT_NODEFILE"])
def test_a_node_file(variable: str, tmp_path: Path) -> None:
    path = tmp_path / "nodes"
    path.write_text("b.example\nb.example\na.example\na.example\n\n")
    allocation = find_allocation({variable: str(path)})
    assert allocation
    assert list(allocation.hosts) == [("b.example", 2), ("a.example", 2)]
    path.write_text("b\na\n")
    allocation = find_allocation({variable: str(path)})
    assert allocation
    assert list(allocation.hosts) == [("b", None), ("a", None)]


def test_no_allocation() -> None:
    assert find_allocation({"PATH": "/bin"}) is None


BROKEN = {
    "SLURM_JOB_NODELIST": {"SLURM_JOB_NODELIST": "n[1-"},
    "SLURM_TASKS_PER_NODE": {
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_NTASKS": "4",
    },
    "PBS_NODEFILE": {"PBS_NODEFILE": "/nowhere"},
    "LSB_MCPU_HOSTS": {"LSB_MCPU_HOSTS": "b 4 a"},
}


@pytest.mark.parametrize("variable", BROKEN)
def test_what_is_not_understood_is_named(variable: str) -> None:
    with pytest.raises(InvalidJob, match=f"the variable {variable} of this allocation") as caught:
        find_allocation(BROKEN[variable])
    assert "platform_options.hosts" in caught.value.hint
