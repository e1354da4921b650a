"""``platform_options`` of the Kubernetes platform, and the clusters of the user's config file.

The file also defines instance types. The options of a job override both:

kubernetes:
  profiles:
    research: {context: research, namespace: vision, queue: gpu, service_account: training}
  instance_types:
    ml.p4d.24xlarge: {gpus: 8, resources: {vpc.amazonaws.com/efa: 4}, memory: 1000Gi}
    a100: {gpus: 1, node_selector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from cloudtrain.config import config_path
from cloudtrain.errors import InvalidJob, PlatformError, nearest
from cloudtrain.platforms.common.platform_options import check_own_options
from cloudtrain.platforms.common.profiles import ProfileFile, Section, named_profile, types_of
from cloudtrain.spec import TrainingJob, convert

COUNT = Annotated[int, Meta(ge=1)]
NOT_NEGATIVE = Annotated[int, Meta(ge=0)]
NAME = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")]
"""The name of an object: a DNS subdomain."""
USER = NOT_NEGATIVE | Literal["image"]


class KubernetesOptions(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of a job on a Kubernetes cluster.

    Sizes and amounts have Kubernetes' notation: ``500m``, ``4``, ``32Gi``. The cluster decides about options that are
    not set, unless they have another default here.
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


FILE = ProfileFile("kubernetes", KubernetesOptions)

NODE_LABEL = "node.kubernetes.io/instance-type"
"""The label that the clouds' node controllers set on every node."""

_G_SIZES = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 4, "16xlarge": 1}
GPUS: dict[str, dict[str, int]] = {
    "p3": {"2xlarge": 1, "8xlarge": 4, "16xlarge": 8},
    "p3dn": {"24xlarge": 8},
    "p4d": {"24xlarge": 8},
    "p4de": {"24xlarge": 8},
    "p5": {"4xlarge": 1, "48xlarge": 8},
    "p5e": {"48xlarge": 8},
    "p5en": {"48xlarge": 8},
    "p6-b200": {"48xlarge": 8},
    "p6-b300": {"48xlarge": 8},
    "g4dn": {**_G_SIZES, "metal": 8},
    "g5": {**_G_SIZES, "24xlarge": 4, "48xlarge": 8},
    "g5g": {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 2, "metal": 2},
    "g6": {**_G_SIZES, "24xlarge": 4, "48xlarge": 8},
    "g6e": {**_G_SIZES, "24xlarge": 4, "48xlarge": 8},
    "g7": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "g7e": {"2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "12xlarge": 2, "24xlarge": 4, "48xlarge": 8},
    "gr6": {"4xlarge": 1, "8xlarge": 1},
}
"""The NVIDIA GPUs of EC2's instance types, by family and size (DescribeInstanceTypes, ``GpuInfo``)."""

_EC2 = re.compile(r"(?P<family>(?P<letters>[a-z]+)[0-9]+[a-z0-9-]*)\.(?P<size>[a-z0-9-]+)")
_GOOGLE_GPUS = re.compile(r"a[2-9]-[a-z]+gpu-(?P<gpus>[0-9]+)g")
_GOOGLE = re.compile(r"(e2|n1|n2d?|n4|c2d?|c3d?|c4a?|t2[da]|m[1-4])-[a-z]+-[0-9]+[a-z0-9-]*")
_CPU_FAMILIES = ("a", "c", "d", "h", "hpc", "i", "im", "is", "m", "mac", "r", "t", "u", "x", "z")
"""Families of EC2 without accelerators."""


def with_profile(job: TrainingJob) -> TrainingJob:
    """``job`` with the options of its profile and instance type, which its own override. Raises InvalidJob."""
    section = FILE.read()
    return FILE.applied(job, section, _chosen(section, job.platform_options), _of_type)


def _chosen(section: Section, own: Mapping[str, Any]) -> str:
    """The profile of a job; by default, the only one for its context. Empty for none."""
    name = own.get("profile")
    if name is not None:
        return named_profile(section, name)
    if not section.profiles:
        return ""
    context = own.get("context") or _current_context()
    fitting = [name for name, options in section.profiles.items() if options.get("context") == context]
    return fitting[0] if context and len(fitting) == 1 else ""


def _current_context() -> str:
    """The current context; empty without a kubeconfig."""
    from cloudtrain.platforms.kubernetes.api.kubeconfig import login

    try:
        return login().context
    except PlatformError:
        return ""


def _of_type(job: TrainingJob, types: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the job's instance type. Raises InvalidJob for an unknown one."""
    for kind in types_of(job):
        known = known_type(kind)
        if known is not None or kind in types:
            return FILE.merged(known or {}, types.get(kind, {}))
        if any(name in given for name in ("gpus", "resources", "node_selector")):
            return {}  # the job itself specifies its needs
        hint = f"{nearest(kind, types)} " if types else ""
        raise InvalidJob(
            f"instance_type: the GPUs and nodes of {kind} are unknown",
            hint=f"{hint}Add it to {config_path()}: kubernetes: {{instance_types: {{{kind}: {{gpus: 8}}}}}}. Or set "
            "platform_options.gpus, and it only names the hosts.",
        )
    return {}


def known_type(name: str) -> dict[str, Any] | None:
    """The options for an instance type; None if the type is unknown.

    >>> known_type("ml.p4d.24xlarge")
    {'node_selector': {'node.kubernetes.io/instance-type': 'p4d.24xlarge'}, 'gpus': 8}
    """
    name = name.removeprefix("ml.")
    gpus = _gpus(name)
    if gpus is None:
        return None
    options: dict[str, Any] = {"node_selector": {NODE_LABEL: name}}
    return {**options, "gpus": gpus} if gpus else options


def _gpus(name: str) -> int | None:
    """The number of GPUs of a type; None if the type is unknown."""
    google = _GOOGLE_GPUS.fullmatch(name)
    if google:
        return int(google["gpus"])
    if _GOOGLE.fullmatch(name):
        return 0
    match = _EC2.fullmatch(name)
    if not match:
        return None
    if match["family"] in GPUS:
        return GPUS[match["family"]].get(match["size"])
    return 0 if match["letters"] in _CPU_FAMILIES else None
