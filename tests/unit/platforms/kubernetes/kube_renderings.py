"""Jobs for Kubernetes and their renderings, shared by the tests of this folder."""

from __future__ import annotations

from typing import Any

import msgspec

from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.kubernetes.manifests import ManifestRequest
from cloudtrain.platforms.kubernetes.render.render import render
from cloudtrain.spec import Source, TrainingJob


def kube_job(**fields: Any) -> TrainingJob:
    """A job as `prepare` makes it, in the namespace ``team``, as if there were no kubeconfig.

    ConfigMaps deliver its source, unless ``delivery`` says otherwise.
    """
    options = {"namespace": "team", "delivery": "configmap", **fields.pop("platform_options", {})}
    defaults = {"job_name": "a-job", "entry_point": "train.py", "image_uri": "image:1"}
    if "output_path" not in fields:
        defaults["output_path"] = "s3://bucket/out"
    job = KubernetesPlatform().resolve(
        TrainingJob.from_dict({**defaults, **fields, "platform_options": options})
    )
    source = Source(f"{job.code_location or 'file:///cache'}/0123/sourcedir.tar.gz", "0123")
    return msgspec.structs.replace(job, source=source)


def rendered(**fields: Any) -> ManifestRequest:
    return render(kube_job(**fields))


def with_options(**options: Any) -> ManifestRequest:
    return rendered(platform_options=options)


def main_of(request: ManifestRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.body["objects"][0]
    return found


def template_of(request: ManifestRequest) -> dict[str, Any]:
    found: dict[str, Any] = main_of(request)["spec"]["template"]
    return found


def pod_of(request: ManifestRequest) -> dict[str, Any]:
    found: dict[str, Any] = template_of(request)["spec"]
    return found


def container_of(request: ManifestRequest) -> dict[str, Any]:
    found: dict[str, Any] = pod_of(request)["containers"][0]
    return found


def environment_of(request: ManifestRequest) -> dict[str, Any]:
    """The container's variables: their values, or references."""
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container_of(request)["env"]}


def object_of(request: ManifestRequest, kind: str, name: str = "a-job") -> dict[str, Any]:
    [found] = [
        item for item in request.body["objects"] if (item["kind"], item["metadata"]["name"]) == (kind, name)
    ]
    result: dict[str, Any] = found
    return result
