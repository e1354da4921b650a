"""A value for each option of each platform, for tests that try all of them."""

from __future__ import annotations

from typing import Any

from cloudtrain.platforms.common.platform_options import option_names
from cloudtrain.platforms.pbs.directives import LACKS, ONLY

CLUSTER: dict[str, Any] = {
    "folder": "/shared/other",
    "node_folder": "$TMPDIR",
    "account": "physics",
    "gpus": 2,
    "gpu_type": "a100",
    "mem": "8G",
    "modules": ["cuda"],
    "prologue": ["ulimit -n 4096"],
    "epilogue": ["echo $status"],
    "python": "/opt/python",
    "container": "apptainer",
    "container_mounts": ["/data"],
    "container_options": ["--fakeroot"],
    "container_home": True,
    "network_interface": "ib0",
    "master_port": 4321,
    "max_preemptions": 3,
}
SLURM: dict[str, Any] = {
    **CLUSTER,
    "profile": "theta",
    "clusters": "theta",
    "partition": "gpu",
    "qos": "high",
    "reservation": "class",
    "constraint": "ib",
    "nodelist": ["n1", "n2"],
    "exclude": "n3",
    "exclusive": True,
    "comment": "nightly",
    "wckey": "w",
    "nice": 0,
    "licenses": "matlab",
    "switches": "1@10",
    "segment": 2,
    "begin": "now+1hour",
    "deadline": "2030-01-01",
    "mail_user": "me@example.org",
    "mail_type": ["END", "FAIL"],
    "gpu_style": "gpus-per-node",
    "gres": "gpu:1",
    "cpus_per_task": 4,
    "mem_per_gpu": "4G",
    "mem_per_cpu": "1G",
    "tmp": "10G",
    "time": "1-00:00:00",
    "array_parallelism": 2,
    "requeue": "never",
    "sbatch": {"contiguous": True},
    "srun": ["--network=ib"],
    "launcher_srun": "pmix",
    "poll_seconds": 30,
}
PBS: dict[str, Any] = {
    **CLUSTER,
    "queue": "gpu",
    "project": "climate",
    "cpus": 4,
    "select": "1:ncpus=8",
    "place": "pack",
    "nodes": "n1+n2",
    "attrs": {"mcdram": "flat"},
    "directives": ["-l software=matlab"],
    "start": "ssh",
}
LSF: dict[str, Any] = {
    **{name: value for name, value in CLUSTER.items() if name != "account"},
    "queue": "gpu",
    "project": "climate",
    "cpus": 4,
    "application": "training",
    "user_group": "vision",
    "reservation": "class",
    "select": "type==any",
    "gpu_mode": "exclusive_process",
    "directives": ["-x"],
    "start": "ssh",
}
HOSTS: dict[str, Any] = {
    "hosts": "localhost:2,n2:2",
    "hostfile": "hosts.txt",
    "folder": "/shared/other",
    "python": "/opt/python",
    "ssh": "ssh -p 2222",
    "master_port": 4321,
    "max_preemptions": 3,
}
KUBERNETES: dict[str, Any] = {
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
    "max_preemptions": 3,
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
CONTAINER: dict[str, Any] = {
    "engine": "podman",
    "gpus": "all",
    "memory": "1g",
    "shm_size": "2g",
    "volumes": ["/tmp:/data:ro"],
    "pull": "always",
    "mount_source": True,
    "capabilities": ["IPC_LOCK"],
    "new_privileges": True,
    "master_port": 4321,
    "max_preemptions": 3,
}
LOCAL: dict[str, Any] = {
    "python": "/opt/python",
    "master_port": 4321,
    "max_preemptions": 3,
    "mount_opt_ml": False,
}
SAGEMAKER: dict[str, Any] = {
    "job_queue": "research",
    "scheduling_priority": 5,
    "share_identifier": "vision",
    "quota_share_name": "vision",
    "retry_strategy": {"attempts": 2},
    "preemption_configuration": {"preemptionRetriesBeforeTermination": 3},
    "timeout_config": {"attemptDurationSeconds": 600},
    "capacity_retries": 3,
    "capacity_wait": 3600,
}
VALUES = {
    "slurm": SLURM,
    "pbs": PBS,
    "torque": PBS,
    "cobalt": PBS,
    "lsf": LSF,
    "hosts": HOSTS,
    "kubernetes": KUBERNETES,
    "container": CONTAINER,
    "local": LOCAL,
    "sagemaker": SAGEMAKER,
}

NEEDS: dict[str, dict[str, Any]] = {
    "gpu_type": {"gpus": 2},
    "gpu_style": {"gpus": 2},
    "gpu_mode": {"gpus": 2},
    "capacity_wait": {"capacity_retries": 3},
    **{
        name: {"job_queue": "research"}
        for name in (
            "scheduling_priority",
            "share_identifier",
            "quota_share_name",
            "retry_strategy",
            "preemption_configuration",
            "timeout_config",
        )
    },
    "container_mounts": {"container": "apptainer"},
    "container_options": {"container": "apptainer"},
    "container_home": {"container": "apptainer"},
    "gpu_resource": {"gpus": 1},
    "training_runtime": {"rendering": "trainjob"},
    "training_runtime_kind": {"rendering": "trainjob"},
    "mpi_implementation": {"rendering": "mpijob"},
    "launcher_as_worker": {"rendering": "mpijob"},
}
"""The options without which an option means nothing."""


def own_options(platform: str) -> list[str]:
    """The options of ``platform``, except for ``login``, which needs a login node: see tests/integration/ssh."""
    return [
        name
        for name in option_names(platform)
        if name != "login"
        and (VALUES[platform] is not PBS or ONLY.get(name, platform) == platform)
        and name not in LACKS.get(platform, ())
    ]
