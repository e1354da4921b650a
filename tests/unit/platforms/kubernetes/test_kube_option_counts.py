"""No option is ignored: each of them changes the objects of a job."""

from __future__ import annotations

from typing import Any

import pytest
from kube_renderings import rendered

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.common.platform_options import option_names

VALUES: dict[str, Any] = {
    "namespace": "other",
    "cluster_domain": "cluster.example",
    "rendering": "jobset",
    "delivery": "s3",
    "training_runtime": "mine",
    "training_runtime_kind": "TrainingRuntime",
    "mpi_implementation": "MPICH",
    "launcher_as_worker": True,
    "ttl": 1,
    "discard_outputs": True,
    "gpus": 2,
    "gpu_resource": "amd.com/gpu",
    "cpu": 4,
    "memory": "8Gi",
    "disk": "100Gi",
    "shm_size": "8Gi",
    "resources": {"rdma/hca": 1},
    "node_selector": {"pool": "gpu"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
    "topology": "rack",
    "topology_spread": [{"topologyKey": "rack"}],
    "priority_class": "high",
    "host_network": True,
    "queue": "research",
    "gang": "volcano",
    "scheduler": "mine",
    "volumes": ["data:/data"],
    "env_from": ["secret:more"],
    "secret_env": {"HF_TOKEN": "hugging-face/token"},
    "service_account": "training",
    "image_pull_policy": "Always",
    "image_pull_secrets": ["registry"],
    "run_as_user": 7,
    "run_as_group": 7,
    "fs_group": 7,
    "read_only_root": True,
    "capabilities": ["IPC_LOCK"],
    "network_policy": False,
    "python": "python3.12",
    "network_interface": "net1",
    "labels": {"team": "vision"},
    "annotations": {"note": "1"},
    "pod_patch": {"spec": {"runtimeClassName": "nvidia"}},
    "master_port": 4321,
}
NEEDS: dict[str, dict[str, Any]] = {
    "gpu_resource": {"gpus": 1},
    "training_runtime": {"rendering": "trainjob"},
    "training_runtime_kind": {"rendering": "trainjob"},
    "mpi_implementation": {"rendering": "mpijob"},
    "launcher_as_worker": {"rendering": "mpijob"},
}
"""The options without which an option means nothing."""
ELSEWHERE = {"profile", "context", "rendering_reason"}
"""They choose the cluster and say why: see test_kube_profiles.py."""


def test_every_option_is_tried() -> None:
    assert set(VALUES) == set(option_names("kubernetes")) - ELSEWHERE


@pytest.mark.parametrize("name", VALUES)
def test_every_option_changes_the_objects(name: str) -> None:
    without = NEEDS.get(name, {})
    job: dict[str, Any] = {"instance_count": 2, "output_path": "s3://bucket/out"}
    if name == "discard_outputs":
        with pytest.raises(Exception, match="output_path"):
            rendered(**{**job, "output_path": None})
        assert rendered(**{**job, "output_path": None}, platform_options={name: True})
        return
    before = rendered(**job, platform_options=without).body["objects"]
    assert rendered(**job, platform_options={**without, name: VALUES[name]}).body["objects"] != before


def test_a_context_needs_a_kubeconfig() -> None:
    with pytest.raises(PlatformError):
        rendered(platform_options={"context": "other"})
