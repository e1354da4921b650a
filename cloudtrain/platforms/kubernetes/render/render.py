"""Renders a job as a request to Kubernetes, and rejects jobs that cannot run there."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from cloudtrain.cost.terms import shortest, terms_text
from cloudtrain.images import AUTO
from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.common.bundled_runtime import SOURCE_CHANNEL, check_bundled_runtime
from cloudtrain.platforms.common.request import base_settings, channel_entries, check_channels, new_request
from cloudtrain.platforms.common.runtime_choice import choose_runtime
from cloudtrain.platforms.kubernetes.manifests import ManifestRequest
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.objects import RESTART_EXIT_CODE, Parts, dependents, refuse_if
from cloudtrain.platforms.kubernetes.render.pod import TERMINATION_LOG, check_path, volumes_of
from cloudtrain.platforms.kubernetes.render.renderings import (
    JobSetRendering,
    MPIJobRendering,
    Rendering,
    TrainJobRendering,
)
from cloudtrain.spec import TrainingJob
from cloudtrain.spec.notify import notify_variables
from cloudtrain.storage import uri_scheme

NAME = "kubernetes"
DEFAULT_NAMESPACE = "default"
ENVIRONMENTS = "/tmp/cloudtrain-environments"
"""The folder in which a pod installs requirements, as an environment on top of the image's Python."""
_EXAMPLE = "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime"

RENDERINGS: Mapping[str, Rendering] = {
    "job": Rendering(),
    "jobset": JobSetRendering(),
    "trainjob": TrainJobRendering(),
    "mpijob": MPIJobRendering(),
}


def render(job: TrainingJob) -> ManifestRequest:
    """The request for ``job``, which is resolved, and has a name and a packed source. Raises InvalidJob."""
    options = KubernetesOptions.of(job)
    check(job, options)
    assert job.job_name and job.source
    kind, rendering = _rendering_of(options)
    refuse_if(
        job.spare_hosts and kind != "job",
        f"spare_hosts: a {rendering.kind.kind} restarts all of its pods, or has no place for hosts that wait",
        "Leave it out, or set platform_options.rendering: job, whose lost pods are replaced one by one.",
    )
    hosts = rendering.host_names(job)
    parts = Parts(
        name=job.job_name,
        job=job,
        options=options,
        namespace=options.namespace or DEFAULT_NAMESPACE,
        hosts=hosts,
        settings=replace(
            base_settings(job, options.master_port),
            rendezvous=hosts.rendezvous(host_network=options.host_network),
            restart_exit_code=RESTART_EXIT_CODE,
            max_run=float(shortest(job.max_run, job.cost_terms) or 0),
            cost_terms=terms_text(job.cost_terms),
            max_preemptions=options.max_preemptions,
            termination_message=TERMINATION_LOG,
            event_lines=True,
            source_channel=SOURCE_CHANNEL,
            # only root can write into the image's Python
            requirements_cache="" if options.run_as_user == 0 else ENVIRONMENTS,
            channels=tuple((name, entry["uri"]) for name, entry in channel_entries(job).items()),
            **_with_notify(job, rendering.settings(job, options)),
        ),
        runtime_sha256=runtime_sha256(),
        by_url=uri_scheme(job.source.uri) != "file",
    )
    body = {
        "rendering": kind,
        "why": options.rendering_reason or "an Indexed Job runs on every cluster",
        "context": options.context or "",
        "namespace": parts.namespace,
        "objects": [rendering.main_object(parts), *rendering.helpers(parts), *dependents(parts)],
        # the files that the pods need in addition to the objects: see `submit.with_files`
        "files": {
            "delivery": "s3" if parts.by_url else "configmap",
            "source": job.source.uri,
            "source_sha256": job.source.sha256,
            "location": job.code_location or "",
            "runtime_sha256": parts.runtime_sha256,
        },
    }
    return ManifestRequest(NAME, job.job_name, body, new_request(NAME, job, body).secrets)


def _with_notify(job: TrainingJob, settings: Mapping[str, Any]) -> Mapping[str, Any]:
    """``settings`` with the rules for the leader's notifications. Ranks do not get variables that only these need."""
    if not job.notify:
        return settings
    own = [name for name in notify_variables(job.notify) if name not in job.shown_environment]
    dropped = ",".join(filter(None, [settings.get("dropped_variables", ""), *own]))
    return {**settings, "notify": json.dumps(msgspec.to_builtins(job.notify)), "dropped_variables": dropped}


def _rendering_of(options: KubernetesOptions) -> tuple[str, Rendering]:
    """The rendering for ``options``, and its name. Raises InvalidJob for options of another rendering."""
    chosen = "job" if options.rendering == "auto" else options.rendering
    defaults = KubernetesOptions()
    for name, rendering in RENDERINGS.items():
        for option in rendering.options:
            refuse_if(
                name != chosen and getattr(options, option) != getattr(defaults, option),
                f"platform_options.{option}: has no effect on a {chosen}, which this job is rendered as",
                f"Set platform_options.rendering: {name}, or remove the option.",
            )
    return chosen, RENDERINGS[chosen]


def check(job: TrainingJob, options: KubernetesOptions) -> None:
    """Raises InvalidJob for a job that cannot run on Kubernetes. The hint has the correction."""
    refuse_if(
        not job.image_uri,
        "image_uri: the kubernetes platform needs an image",
        f"Any image with Python 3.9 or newer and your libraries, for example --image {_EXAMPLE} (image_uri)",
    )
    refuse_if(
        job.image_uri == AUTO,
        "image_uri: auto chooses an image on this machine or in ECR, which a cluster may be unable to pull",
        "Push it to a registry that the cluster reads: cloudtrain image push; and name it in image_uri. "
        f"Or use a public one, for example {_EXAMPLE}",
    )
    refuse_if(
        job.entry_point is None,
        "entry_point: the kubernetes platform needs a script",
        "Name the script to run.",
    )
    refuse_if(
        choose_runtime(job) == "toolkit",
        "runtime: SageMaker's toolkit does not run on kubernetes",
        "Leave runtime out: cloudtrain's runs the script in any image with Python 3.9.",
    )
    check_bundled_runtime(job)
    refuse_if(
        job.checkpoint_local_path,
        "checkpoint_local_path: a job on kubernetes keeps its checkpoints in /opt/ml/checkpoints",
        "Leave it out.",
    )
    for field in ("instance_groups", "instance_preferences"):
        refuse_if(
            getattr(job, field),
            f"{field}: the hosts of a job on kubernetes are all of one type",
            "Set instance_type and instance_count.",
        )
    check_channels(job, NAME)
    volumes = volumes_of(options)
    inputs = {f"inputs.{name}": getattr(channel, "s3_data", "") for name, channel in job.channels.items()}
    for field, uri in inputs.items():
        check_path(field, uri, volumes)
    refuse_if(
        not job.output_path and not options.discard_outputs,
        "output_path: the folders of a pod vanish with it, so its model has to go elsewhere",
        "Set output_path to an s3:// URI, or to file:///PATH on a volume of platform_options.volumes; or "
        "throw the outputs away: platform_options.discard_outputs: true",
    )
    if job.enable_network_isolation:
        _check_isolation(job, options, inputs)
    check_path("output_path", job.output_path, volumes, writes=True)
    check_path("checkpoint_s3_uri", job.checkpoint_s3_uri, volumes, writes=True)


def _check_isolation(job: TrainingJob, options: KubernetesOptions, inputs: Mapping[str, str]) -> None:
    """Raises InvalidJob for a job that needs S3 although its pods can reach only each other."""
    refuse_if(
        not options.network_policy,
        "enable_network_isolation: a NetworkPolicy isolates the pods, and platform_options.network_policy is false",
        "Leave network_policy out.",
    )
    refuse_if(
        options.host_network,
        "enable_network_isolation: no NetworkPolicy applies to pods in the network of their nodes, which "
        "platform_options.host_network asks for",
        "Leave host_network out, or enable_network_isolation.",
    )
    places = {"output_path": job.output_path, "checkpoint_s3_uri": job.checkpoint_s3_uri, **inputs}
    if options.delivery != "configmap":
        places["code_location"] = job.code_location
    for field, uri in places.items():
        refuse_if(
            uri and uri_scheme(uri) != "file",
            f"{field}: pods cannot reach {uri} with enable_network_isolation",
            "Use file:// URIs on a volume, and leave code_location out.",
        )
