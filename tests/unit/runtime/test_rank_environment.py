"""The variables of a host that ranks take over or not, so that other frameworks connect them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import Paths
from cloudtrain.distributed import World
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.gpu_environment import cpu_variables
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.launchers.launch import LaunchPlan
from cloudtrain.runtime.launchers.launch_plan import make_launch_plan

CPUS = {"ACCELERATE_USE_CPU": "true"}
TORCHRUN = {"sagemaker_torch_distributed_enabled": "true"}
LAUNCHERS = {
    "torchrun": TORCHRUN,
    "horovod": {"sagemaker_horovod_enabled": "true"},
    "processes": {"sagemaker_processes_enabled": "true"},
}
"""Each with the hyperparameter that chooses it. Those that need no program on the host."""
PLACE = {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0", "SLURM_STEP_NODELIST": "node1"}
ALLOCATION = {"SLURM_JOB_ID": "71", "SLURM_NODELIST": "node1", "SLURM_TASKS_PER_NODE": "1"}


def environment(
    folder: Path, distribution: dict[str, str], hosts: list[str], environ: dict[str, str]
) -> dict[str, str]:
    """The variables of ranks on a host without GPUs, whose own variables are ``environ``."""
    return dict(plan(folder, distribution, {"current_host": hosts[0], "hosts": hosts}, environ).environment)


def plan(
    folder: Path,
    distribution: dict[str, str],
    resources: dict[str, Any],
    environ: dict[str, str],
    horovod: HorovodChoice = HorovodChoice(),  # noqa: B008  it is immutable
) -> LaunchPlan:
    paths = Paths(folder)
    paths.make()
    (paths.code / "train.py").write_text("")
    documents = {
        "hyperparameters": {"sagemaker_program": "train.py", **distribution},
        "resourceconfig": resources,
    }
    for name, document in documents.items():
        (paths.input_config / f"{name}.json").write_text(json.dumps(document))
    environ = {"CUDA_VISIBLE_DEVICES": "", **environ}
    config = HostConfig.read(paths, environ)
    return make_launch_plan(config, "python", (config.distribution_hosts[0], 1), horovod, environ)


@pytest.mark.parametrize(("ranks", "gpus", "variables"), [(2, 0, CPUS), (1, 0, {}), (2, 1, {}), (16, 8, {})])
def test_several_ranks_without_gpus(ranks: int, gpus: int, variables: dict[str, str]) -> None:
    assert cpu_variables(ranks, gpus, accelerators=[]) == variables


def test_a_host_with_other_accelerators(tmp_path: Path) -> None:
    patterns = [f"{tmp_path}/dev/neuron[0-9]*"]
    assert cpu_variables(2, 0, patterns) == CPUS
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "neuron0").touch()
    assert cpu_variables(2, 0, patterns) == {}


@pytest.mark.parametrize(
    ("distribution", "environ", "value"),
    [(TORCHRUN, {}, "true"), (TORCHRUN, {"ACCELERATE_USE_CPU": "false"}, "false"), ({}, {}, None)],
)
def test_accelerate_connects_ranks_on_cpus(
    tmp_path: Path, distribution: dict[str, str], environ: dict[str, str], value: str | None
) -> None:
    found = environment(tmp_path, distribution, ["a", "b"], environ)
    assert found.get("ACCELERATE_USE_CPU") == value


@pytest.mark.parametrize(
    ("distribution", "hosts", "kept"),
    [(TORCHRUN, ["a", "b"], {}), (TORCHRUN, ["a"], {}), ({}, ["a", "b"], {}), ({}, ["a"], PLACE)],
)
def test_ranks_do_not_take_over_the_place_in_an_outer_slurm_step(
    tmp_path: Path, distribution: dict[str, str], hosts: list[str], kept: dict[str, str]
) -> None:
    found = environment(tmp_path, distribution, hosts, {**PLACE, **ALLOCATION})
    slurm = {name: value for name, value in found.items() if name.startswith("SLURM_")}
    assert slurm == {**ALLOCATION, **kept}


def test_a_script_without_launcher_does_not_belong_to_the_step_around_its_runtime(tmp_path: Path) -> None:
    step = {
        "SLURM_STEP_ID": "0",
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_TASKS_PER_NODE": "4",
        "SLURM_NODEID": "0",
    }
    around = {**PLACE, **ALLOCATION, **step, "CLOUDTRAIN_RANK": "0", "CLOUDTRAIN_WORLD_SIZE": "1"}
    assert World.from_environ(environment(tmp_path, {}, ["a"], around)) == World()
    inner = {**environment(tmp_path, {}, ["a"], around), "SLURM_STEP_ID": "1"}  # of an srun in the script
    assert World.from_environ(inner).size == 4


@pytest.mark.parametrize("launcher", [*LAUNCHERS, "none"])
@pytest.mark.parametrize("alias", [True, False])
def test_cloudtrains_horovod_is_on_the_path_of_every_launcher(
    tmp_path: Path, launcher: str, alias: bool
) -> None:
    resources = {"current_host": "a", "hosts": ["a"]}
    found = plan(tmp_path, LAUNCHERS.get(launcher, {}), resources, {}, HorovodChoice(alias=alias))
    assert ("cloudtrain/alias" in found.environment["PYTHONPATH"]) == alias


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_only_hosts_of_the_distribution_have_its_ranks(tmp_path: Path, launcher: str) -> None:
    groups = [
        {"instance_group_name": "data", "instance_type": "x", "hosts": ["a"]},
        {"instance_group_name": "gpu", "instance_type": "x", "hosts": ["b", "c"]},
    ]
    chosen = {
        "sagemaker_distribution_instance_groups": '["gpu"]',
        "sagemaker_processes_per_host": "2",
    }
    found = {}
    for host in "abc":
        resources = {"current_host": host, "hosts": ["a", "b", "c"], "instance_groups": groups}
        host_plan = plan(tmp_path / host, {**LAUNCHERS[launcher], **chosen}, resources, {})
        found[host] = [(slot.rank, slot.world_size) for slot in host_plan.slots], host_plan.hosts
    assert found == {"a": ([(0, 1)], 1), "b": ([(0, 4), (1, 4)], 2), "c": ([(2, 4), (3, 4)], 2)}
