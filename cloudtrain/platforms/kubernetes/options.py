"""``platform_options`` of the Kubernetes platform."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.spec import TrainingJob, convert

COUNT = Annotated[int, Meta(ge=1)]
NOT_NEGATIVE = Annotated[int, Meta(ge=0)]
NAME = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")]
"""The name of an object: a DNS subdomain."""
USER = NOT_NEGATIVE | Literal["image"]


class KubernetesOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job on a Kubernetes cluster.

    Sizes and amounts have Kubernetes' notation: ``500m``, ``4``, ``32Gi``. What is not given here is left to the
    cluster, except where the default differs.
    """

    # where
    profile: str | None = None
    context: str | None = None
    namespace: Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")] | None = None
    cluster_domain: NAME = "cluster.local"
    # as what
    rendering: Literal["auto", "job", "jobset", "trainjob", "mpijob"] = "auto"
    delivery: Literal["auto", "configmap", "s3"] = "auto"
    training_runtime: NAME = "torch-distributed"
    training_runtime_kind: Literal["ClusterTrainingRuntime", "TrainingRuntime"] = "ClusterTrainingRuntime"
    mpi_implementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"
    launcher_as_worker: bool = False
    ttl: NOT_NEGATIVE = 604800
    discard_outputs: bool = False
    max_preemptions: NOT_NEGATIVE = 10
    # with which resources
    gpus: NOT_NEGATIVE | None = None
    gpu_resource: str = "nvidia.com/gpu"
    cpu: str | float | None = None
    memory: str | None = None
    disk: str | None = None
    shm_size: str | None = None
    resources: dict[str, str | int] = {}
    # on which nodes
    node_selector: dict[str, str] = {}
    tolerations: list[dict[str, Any]] = []
    affinity: dict[str, Any] = {}
    topology: str | None = None
    topology_spread: list[dict[str, Any]] = []
    priority_class: NAME | None = None
    host_network: bool = False
    # in which queue
    queue: NAME | None = None
    gang: Literal["none", "kueue", "volcano", "coscheduling"] | None = None
    scheduler: str | None = None
    # with which data
    volumes: list[str | dict[str, Any]] = []
    env_from: list[str] = []
    secret_env: dict[str, str] = {}
    # with which rights
    service_account: NAME | None = None
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = None
    image_pull_secrets: list[NAME] = []
    run_as_user: USER = 1000
    run_as_group: USER | None = None
    fs_group: USER | None = None
    read_only_root: bool = False
    capabilities: list[Annotated[str, Meta(pattern=r"^[A-Z][A-Z_]*$")]] = []
    network_policy: bool = True
    # in which details
    python: str | None = None
    network_interface: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    pod_patch: dict[str, Any] = {}
    master_port: Annotated[int, Meta(ge=0, le=65535)] = 0
    # chosen by `resolve`
    rendering_reason: str = ""

    @classmethod
    def of(cls, job: TrainingJob) -> KubernetesOptions:
        """Raises InvalidJob."""
        check_own_options("kubernetes", job.platform_options)
        return convert(job.platform_options, cls, "platform_options")
