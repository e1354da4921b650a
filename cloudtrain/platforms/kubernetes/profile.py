"""The clusters of the user's config file, merged below the options of a job.

kubernetes:
  profiles:
    research: {context: research, namespace: vision, queue: gpu, service_account: training}
  instance_types:
    ml.p4d.24xlarge: {gpus: 8, resources: {vpc.amazonaws.com/efa: 4}, memory: 1000Gi}
    a100: {gpus: 1, node_selector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-80GB}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain.config import config_path
from cloudtrain.errors import InvalidJob, PlatformError, nearest
from cloudtrain.platforms.common.profiles import (
    ProfileFile,
    Section,
    named_profile,
    types_of,
)
from cloudtrain.platforms.kubernetes.instance_types import known_type
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.spec import TrainingJob

FILE = ProfileFile("kubernetes", KubernetesOptions)


def with_profile(job: TrainingJob) -> TrainingJob:
    """``job`` with the options of its profile and its instance type below its own. Raises InvalidJob."""
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
    """Empty without a kubeconfig."""
    from cloudtrain.platforms.kubernetes.api.kubeconfig import login

    try:
        return login().context
    except PlatformError:
        return ""


def _of_type(job: TrainingJob, types: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of the job's instance type. Raises InvalidJob for one that nothing is known about."""
    for kind in types_of(job):
        known = known_type(kind)
        if known is not None or kind in types:
            return FILE.merged(known or {}, types.get(kind, {}))
        if any(name in given for name in ("gpus", "resources", "node_selector")):
            return {}  # the job says itself what it needs
        hint = f"{nearest(kind, types)} " if types else ""
        raise InvalidJob(
            f"instance_type: cloudtrain does not know the GPUs and nodes of {kind}",
            hint=f"{hint}Add it to {config_path()}: kubernetes: {{instance_types: {{{kind}: {{gpus: 8}}}}}}. Or set "
            "platform_options.gpus, and it only names the hosts.",
        )
    return {}
