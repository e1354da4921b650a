"""Accelerate and the Trainer of Transformers connect ranks on CPUs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.runtime.horovod_choice import HorovodChoice
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launch_plan import make_launch_plan
from cloudtrain.runtime.without_gpus import cpu_variables

CPUS = {"ACCELERATE_USE_CPU": "true"}


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
    [
        ({"sagemaker_torch_distributed_enabled": "true"}, {}, "true"),
        ({"sagemaker_torch_distributed_enabled": "true"}, {"ACCELERATE_USE_CPU": "false"}, "false"),
        ({}, {}, None),
    ],
)
def test_the_ranks_of_a_job_get_it_unless_it_sets_it(
    tmp_path: Path, distribution: dict[str, str], environ: dict[str, str], value: str | None
) -> None:
    paths = Paths(tmp_path)
    paths.make()
    (paths.code / "train.py").write_text("")
    documents = {
        "hyperparameters": {"sagemaker_program": "train.py", **distribution},
        "resourceconfig": {"current_host": "a", "hosts": ["a", "b"]},
    }
    for name, document in documents.items():
        (paths.input_config / f"{name}.json").write_text(json.dumps(document))
    environ = {"CUDA_VISIBLE_DEVICES": "", **environ}
    plan = make_launch_plan(HostConfig.read(paths, environ), "python", ("a", 1), HorovodChoice(), environ)
    assert plan.environment.get("ACCELERATE_USE_CPU") == value
