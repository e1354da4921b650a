"""Ranks on Trainium and Inferentia: one for each Neuron core, as SageMaker's toolkit counts them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.contract.processors import neuron_core_count
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.launchers.launch import LaunchPlan
from cloudtrain.runtime.launchers.launch_plan import make_launch_plan


def neuron_ls(folder: Path, answer: str, *, status: int = 0) -> dict[str, str]:
    """The environment of a host whose ``neuron-ls -j`` prints ``answer``."""
    program = folder / "bin" / "neuron-ls"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n[ \"$*\" = -j ] || exit 9\ncat <<'END'\n{answer}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def listed(devices: int, cores: int) -> str:
    """The answer of ``neuron-ls``, shortened to what counts."""
    return json.dumps([{"neuron_device": number, "nc_count": cores} for number in range(devices)])


def nodes(folder: Path, devices: int) -> Path:
    """A folder with device nodes, and others that are none."""
    for name in (*(f"neuron{number}" for number in range(devices)), "neuron_rt", "null"):
        (folder / "dev").mkdir(exist_ok=True)
        (folder / "dev" / name).touch()
    return folder / "dev"


@pytest.mark.parametrize(
    ("instance_type", "devices", "cores", "found"),
    [
        ("ml.trn1.2xlarge", 1, 2, 2),
        ("ml.trn1.32xlarge", 16, 2, 32),
        ("ml.trn1n.32xlarge", 16, 2, 32),
        ("ml.inf2.48xlarge", 12, 2, 24),
        ("ml.inf1.24xlarge", 16, 4, 64),
    ],
)
def test_the_cores_that_neuron_ls_lists(
    tmp_path: Path, instance_type: str, devices: int, cores: int, found: int
) -> None:
    environ = neuron_ls(tmp_path, listed(devices, cores))
    assert neuron_core_count(instance_type, environ) == found
    assert neuron_core_count(instance_type, {"PATH": "/nowhere"}, nodes(tmp_path, devices)) == found


@pytest.mark.parametrize("cores", [8, 4], ids=["physical", "logical"])
def test_newer_devices_have_logical_cores(tmp_path: Path, cores: int) -> None:
    """The toolkit's number for an ml.trn2.48xlarge is 64, whatever neuron-ls lists."""
    environ = neuron_ls(tmp_path, listed(16, cores))
    devices = nodes(tmp_path, 16)
    assert neuron_core_count("ml.trn2.48xlarge", environ, devices) == 64
    assert neuron_core_count("ml.trn2u.48xlarge", environ, devices) == 64
    assert neuron_core_count("ml.trn2.48xlarge", {**environ, "NEURON_LOGICAL_NC_CONFIG": "1"}, devices) == 128
    assert neuron_core_count("ml.trn2.48xlarge", {"NEURON_LOGICAL_NC_CONFIG": "x"}, devices) == 64


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("", 0),
        ("no devices", 1),
        ("[", 0),
        ("{}", 0),
        ("[1]", 0),
        ('[{"nc_count": "x"}]', 0),
        ('{"a": 1}', 0),
    ],
)
def test_a_host_without_devices(tmp_path: Path, answer: str, status: int) -> None:
    environ = neuron_ls(tmp_path, answer, status=status)
    for instance_type in ("ml.trn1.32xlarge", "ml.trn2.48xlarge", "ml.m5.xlarge", "local", None):
        assert neuron_core_count(instance_type, environ, nodes(tmp_path, 0)) == 0


def plan(folder: Path, environ: dict[str, str], **hyperparameters: object) -> LaunchPlan:
    paths = Paths(folder / "host")
    paths.make()
    (paths.code / "train.py").touch()
    values = {"sagemaker_program": "train.py", **hyperparameters}
    documents = {
        "hyperparameters": {key: json.dumps(value) for key, value in values.items()},
        "resourceconfig": {
            "current_host": "algo-1",
            "hosts": ["algo-1", "algo-2"],
            "current_instance_type": "ml.trn1.32xlarge",
        },
    }
    for name, document in documents.items():
        (paths.input_config / f"{name}.json").write_text(json.dumps(document))
    return make_launch_plan(HostConfig.read(paths, environ), "python", ("a", 1), HorovodChoice(), environ)


def test_torchrun_starts_a_rank_for_each_core(tmp_path: Path) -> None:
    environ = neuron_ls(tmp_path, listed(16, 2))
    found = plan(tmp_path, environ, sagemaker_torch_distributed_enabled=True)
    assert "--nproc_per_node=32" in found.command
    assert (len(found.slots), found.slots[0].world_size) == (32, 64)


def test_the_job_may_override_it(tmp_path: Path) -> None:
    environ = neuron_ls(tmp_path, listed(16, 2))
    found = plan(tmp_path, environ, sagemaker_torch_distributed_enabled=True, sagemaker_processes_per_host=2)
    assert len(found.slots) == 2
    assert len(plan(tmp_path, environ).slots) == 1
