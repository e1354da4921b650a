"""The variables of the ranks that depend on the host's instance type and driver."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.launchers.gpu_environment import compatibility_folder, efa_variables
from cloudtrain.runtime.launchers.horovod import HorovodChoice
from cloudtrain.runtime.launchers.launch_plan import make_launch_plan

EFA = {"FI_PROVIDER": "efa", "NCCL_PROTO": "simple"}
RDMA = {**EFA, "FI_EFA_USE_DEVICE_RDMA": "1", "RDMAV_FORK_SAFE": "1"}

OF_THE_TOOLKIT = {
    "ml.g4dn.8xlarge": EFA, "ml.g4dn.12xlarge": EFA, "ml.g5.48xlarge": EFA, "ml.p3dn.24xlarge": EFA,
    "ml.p4d.24xlarge": RDMA, "ml.p4de.24xlarge": RDMA, "ml.p5.48xlarge": RDMA, "ml.p5e.48xlarge": RDMA,
    "ml.trn1.32xlarge": RDMA, "ml.p6e-gb200.36xlarge": RDMA,
}  # fmt: skip
"""SM_EFA_NCCL_INSTANCES and SM_EFA_RDMA_INSTANCES of sagemaker-training-toolkit 5.1.4."""

NEWER = {
    "ml.p5.4xlarge": RDMA, "ml.p5en.48xlarge": RDMA, "ml.p6-b200.48xlarge": RDMA, "ml.p6-b300.48xlarge": RDMA,
    "ml.g6.48xlarge": EFA, "ml.g6e.8xlarge": EFA, "ml.g7e.48xlarge": EFA, "ml.trn1n.32xlarge": RDMA,
    "ml.trn2.48xlarge": RDMA, "p4d.24xlarge": RDMA,
}  # fmt: skip

WITHOUT = [
    "ml.g4dn.xlarge",
    "ml.g5.4xlarge",
    "ml.p3.16xlarge",
    "ml.trn1.2xlarge",
    "ml.m5.24xlarge",
    "local",
    "",
    None,
]


@pytest.mark.parametrize(("instance_type", "variables"), [*OF_THE_TOOLKIT.items(), *NEWER.items()])
def test_efa_as_in_awss_toolkit(instance_type: str, variables: dict[str, str]) -> None:
    assert efa_variables(instance_type) == variables


@pytest.mark.parametrize("instance_type", WITHOUT)
def test_instances_without_efa(instance_type: str | None) -> None:
    assert efa_variables(instance_type) == {}


def environment(folder: Path, instance_type: str, environ: dict[str, str]) -> dict[str, str]:
    """The variables of ranks on a host of this type."""
    paths = Paths(folder)
    paths.make()
    (paths.code / "train.py").write_text("")
    documents = {
        "hyperparameters": {"sagemaker_program": "train.py", "sagemaker_torch_distributed_enabled": "true"},
        "resourceconfig": {"current_host": "a", "hosts": ["a", "b"], "current_instance_type": instance_type},
    }
    for name, document in documents.items():
        (paths.input_config / f"{name}.json").write_text(json.dumps(document))
    config = HostConfig.read(paths, environ)
    return dict(make_launch_plan(config, "python", ("a", 1), HorovodChoice(), environ).environment)


def test_ranks_get_the_variables_unless_the_job_sets_them(tmp_path: Path) -> None:
    found = environment(tmp_path, "ml.p4d.24xlarge", {"NCCL_PROTO": "LL128"})
    assert {name: found[name] for name in RDMA} == {**RDMA, "NCCL_PROTO": "LL128"}
    assert "FI_PROVIDER" not in environment(tmp_path / "other", "ml.g5.xlarge", {})


@pytest.mark.parametrize(
    ("file", "text", "used"),
    [
        ("sys/module/nvidia/version", "550.163.01\n", True),
        ("sys/module/nvidia/version", "580.82.07\n", False),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.230.02  Fri\n",
            True,
        ),
        (
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.44.01  R\n",
            False,
        ),
        ("sys/module/nvidia/version", "unknown\n", False),
        ("elsewhere", "550.1\n", False),
    ],
)
def test_compatibility_libraries_are_for_older_drivers(
    tmp_path: Path, file: str, text: str, used: bool
) -> None:
    compat = tmp_path / "cuda" / "compat"
    compat.mkdir(parents=True)
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    assert compatibility_folder(compat, tmp_path) is None
    (compat / "libcuda.so.580.95.05").touch()
    os.symlink("libcuda.so.580.95.05", compat / "libcuda.so.1")
    assert compatibility_folder(compat, tmp_path) == (str(compat) if used else None)


@pytest.mark.parametrize(
    ("models", "used"),
    [
        (["Tesla T4"], True),
        (["NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB"], True),
        (["NVIDIA GeForce RTX 3090"], False),
        (["NVIDIA TITAN RTX"], False),
    ],
)
def test_compatibility_libraries_are_for_gpus_that_support_them(
    tmp_path: Path, models: list[str], used: bool
) -> None:
    """On others, CUDA fails with them (error 804), and often runs without them."""
    (tmp_path / "libcuda.so.580.95.05").touch()
    driver = tmp_path / "proc/driver/nvidia"
    for number, model in enumerate(models):
        gpu = driver / "gpus" / f"0000:{number:02x}:00.0"
        gpu.mkdir(parents=True)
        (gpu / "information").write_text(f"Model: \t\t {model}\nIRQ:   \t\t 95\n")
    (driver / "version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.230.02  Fri\n")
    assert compatibility_folder(tmp_path, tmp_path) == (str(tmp_path) if used else None)
