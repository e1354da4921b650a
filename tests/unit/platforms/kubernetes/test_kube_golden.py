"""The YAML of whole jobs, as recorded. After a change on purpose, record them again, and read the difference:

RECORD_GOLDEN=1 python -m pytest tests/unit/platforms/kubernetes/test_kube_golden.py
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from custom_resources import PLURALS
from kube_renderings import rendered
from kube_schemas import validate_everywhere

from cloudtrain.packaging import runtime_sha256
from cloudtrain.platforms.kubernetes.labels import POD_START
from cloudtrain.platforms.kubernetes.manifests import to_yaml

pytestmark = pytest.mark.proof("Kubernetes, newer", text="schemas up to 1.37")

GOLDEN = Path(__file__).parents[3] / "data" / "kubernetes"

CASES: dict[str, dict[str, Any]] = {
    "one_host": {},
    "mpi": {
        "instance_count": 4,
        "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
        "hyperparameters": {"epochs": 3, "lr": 0.1},
        "inputs": {"train": "file:///data/imagenet", "labels": "s3://bucket/labels"},
        "environment": {
            "NCCL_DEBUG": "INFO",
            "PRICE": "$$(HOME) costs $5",
            "WANDB_API_KEY": "0123456789abcdef",
        },
        "max_retry_attempts": 2,
        "max_run": 3600,
        "output_path": "file:///checkpoints/out",
        "platform_options": {
            "gpus": 8,
            "cpu": 96,
            "memory": "1000Gi",
            "shm_size": "64Gi",
            "resources": {"vpc.amazonaws.com/efa": 4, "hugepages-2Mi": "5120Mi"},
            "node_selector": {"node.kubernetes.io/instance-type": "p4d.24xlarge"},
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
            "topology": "topology.kubernetes.io/zone",
            "volumes": ["imagenet:/data:ro", "checkpoints:/checkpoints"],
            "secret_env": {"HF_TOKEN": "hugging-face/token"},
            "env_from": ["secret:more", "configmap:proxies"],
            "service_account": "training",
            "image_pull_secrets": ["registry"],
            "priority_class": "high",
            "capabilities": ["IPC_LOCK"],
        },
    },
    "kueue": {
        "instance_count": 2,
        "distribution": {"torch_distributed": {"enabled": True}},
        "platform_options": {"gpus": 1, "queue": "research", "topology": "cloud.provider.com/rack"},
    },
    "volcano": {"instance_count": 2, "platform_options": {"gang": "volcano", "queue": "research"}},
    "s3": {
        "code_location": "s3://bucket/code",
        "platform_options": {"delivery": "auto", "run_as_user": "image", "read_only_root": True},
    },
    "jobset": {"instance_count": 2, "platform_options": {"rendering": "jobset"}},
    "trainjob": {"instance_count": 2, "platform_options": {"rendering": "trainjob", "gpus": 1}},
    "mpijob": {
        "instance_count": 2,
        "distribution": {"mpi": {"enabled": True, "processes_per_host": 8}},
        "platform_options": {"rendering": "mpijob", "gpus": 8},
    },
}


def test_pod_start_reaches_the_pod_as_it_is() -> None:
    text = POD_START.read_text()
    for item in rendered().body["objects"]:
        if "start.py" in item.get("data", {}):
            assert item["data"]["start.py"] == text
            return
    pytest.fail("no ConfigMap has start.py")


@pytest.mark.parametrize("name", CASES)
def test_the_yaml_is_the_recorded_one(name: str) -> None:
    request = rendered(**CASES[name])
    natives = [item for item in request.body["objects"] if item["kind"] not in ("PodGroup", *PLURALS)]
    validate_everywhere(natives)
    text = _stable(to_yaml(request.body, request.body["objects"]))
    path = GOLDEN / f"{name}.yaml"
    if os.environ.get("RECORD_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def _stable(text: str) -> str:
    """Without what changes with each version of the bundled programs."""
    program = "".join(f"    {line}".rstrip() + "\n" for line in POD_START.read_text().splitlines())
    assert program in text
    text = text.replace(program, "    (pod_start.py)\n")
    for sha256 in (runtime_sha256(), hashlib.sha256(POD_START.read_bytes()).hexdigest()):
        # one that begins with a digit is quoted
        text = text.replace(f"'{sha256}'", "(SHA-256)").replace(sha256, "(SHA-256)")
    return text + "\n"
