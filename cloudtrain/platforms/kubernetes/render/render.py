"""Renders a job as a request to Kubernetes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cloudtrain.packaging.zipapp import runtime_sha256
from cloudtrain.platforms.common.channels import channel_entries
from cloudtrain.platforms.common.container_entrypoint import SOURCE_CHANNEL
from cloudtrain.platforms.common.request import base_settings, new_request
from cloudtrain.platforms.kubernetes.manifests import ManifestRequest
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render.check import NAME, check
from cloudtrain.platforms.kubernetes.render.main_object import RESTART_EXIT_CODE
from cloudtrain.platforms.kubernetes.render.objects import dependents
from cloudtrain.platforms.kubernetes.render.parts import Parts
from cloudtrain.platforms.kubernetes.render.pod import TERMINATION_LOG
from cloudtrain.platforms.kubernetes.render.renderings import rendering_of
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import uri_scheme

DEFAULT_NAMESPACE = "default"

ENVIRONMENTS = "/tmp/cloudtrain-environments"
"""Where a pod installs requirements: an environment on top of the image's Python."""


def render(job: TrainingJob) -> ManifestRequest:
    """The request for ``job``, which is resolved, and has a name and a packed source. Raises InvalidJob."""
    options = KubernetesOptions.of(job)
    check(job, options)
    assert job.job_name and job.source
    kind, rendering = rendering_of(options)
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
            max_run=float(job.max_run or 0),
            max_preemptions=options.max_preemptions,
            termination_message=TERMINATION_LOG,
            event_lines=True,
            source_channel=SOURCE_CHANNEL,
            # only root may write into the image's Python
            requirements_cache="" if options.run_as_user == 0 else ENVIRONMENTS,
            channels=tuple((name, entry["uri"]) for name, entry in channel_entries(job).items()),
            **rendering.settings(job, options),
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
        "files": _files(parts),
    }
    request = new_request(NAME, job, body)
    return ManifestRequest(NAME, job.job_name, body, request.secrets)


def _files(parts: Parts) -> dict[str, Any]:
    """The files that have to reach the pods in addition to the objects: see `delivery`."""
    assert parts.job.source
    return {
        "delivery": "s3" if parts.by_url else "configmap",
        "source": parts.job.source.uri,
        "source_sha256": parts.job.source.sha256,
        "location": parts.job.code_location or "",
        "runtime_sha256": parts.runtime_sha256,
    }
