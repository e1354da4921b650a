"""The arguments of an estimator for a job that runs or has ended, for `Estimator.attach`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from cloudtrain.contract import decode_hyperparameters, user_hyperparameters
from cloudtrain.job import Job
from cloudtrain.platforms import Requests
from cloudtrain.platforms.sagemaker.queue.request import training_request
from cloudtrain.platforms.sagemaker.request_fields import SET_BY, get_path
from cloudtrain.spec import REDACTED

_TIME = re.compile(r"-(\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-\d{3}|\d{8}-\d{6}-\w{4}|\d{6}-\d{4})$")
"""The end of a generated job name: the SDK's times, and cloudtrain's."""

_VERSIONS = re.compile(r"/(pytorch|tensorflow|mxnet)-training:(\d[\d.]*)-[cg]pu-(py\d+)")
"""Matches the framework, its version and its Python in the URI of AWS's image."""

_ATTACHED = (
    "role image_uri input_mode metric_definitions instance_type instance_count volume_size volume_kms_key"
    " keep_alive_period_in_seconds training_plan instance_placement_config max_run max_wait use_spot_instances"
    " output_path output_kms_key checkpoint_s3_uri checkpoint_local_path subnets security_group_ids"
    " enable_network_isolation encrypt_inter_container_traffic tags"
)
"""The fields of a SageMaker request that are arguments."""

_PLACES = {field: place for place, field in SET_BY.items() if field in _ATTACHED.split()}


def attached_arguments(job: Job, model_channel_name: str, *, is_framework: bool = False) -> dict[str, Any]:
    """The arguments that describe ``job``, as far as its platform still has them. Secrets are left out.

    Args:
        is_framework: whether to include the versions of the framework and of Python, if the image is one of AWS's.

    Raises:
        JobNotFound: there is no such job.
    """
    if not isinstance(job.platform, Requests):
        job.describe()
        return {"platform": job.platform.name}
    body = training_request(job.platform.request(job.name).body)
    found = described_arguments(body, model_channel_name, is_framework=is_framework)
    return {**found, "platform": job.platform.name, "base_job_name": _TIME.sub("", job.name)}


def described_arguments(
    body: Mapping[str, Any], model_channel_name: str = "model", *, is_framework: bool = False
) -> dict[str, Any]:
    """The arguments that result in a request with ``body``: see `attached_arguments`."""
    encoded = body.get("HyperParameters", body.get("hyperparameters", {}))
    values = decode_hyperparameters(encoded)
    source = values.get("sagemaker_submit_directory")
    environment = body.get("Environment", body.get("environment", {}))
    found = {
        **{name: get_path(body, place) for name, place in _PLACES.items()},
        **_hosts(body),
        "entry_point": values.get("sagemaker_program"),
        "source_dir": source if str(source).startswith("s3://") else None,
        "hyperparameters": user_hyperparameters(values),
        "environment": {
            name: value
            for name, value in environment.items()
            if value != REDACTED and not name.startswith("CLOUDTRAIN_")
        },
        "model_channel_name": _model_channel(body, model_channel_name),
    }
    if match := _VERSIONS.search(found["image_uri"] or "" if is_framework else ""):
        found |= {"framework_version": match[2], "py_version": match[3]}
    return {name: value for name, value in found.items() if value not in (None, "", [], {})}


def _hosts(body: Mapping[str, Any]) -> dict[str, Any]:
    """The instance groups of a SageMaker job, or the number of hosts of a job on another platform."""
    groups = [
        {
            "instance_group_name": group["InstanceGroupName"],
            "instance_type": group["InstanceType"],
            "instance_count": group["InstanceCount"],
        }
        for group in body.get("ResourceConfig", {}).get("InstanceGroups", ())
    ]
    if groups:
        return {"instance_groups": groups}
    return {"instance_count": body["host_count"]} if "host_count" in body else {}


def _model_channel(body: Mapping[str, Any], name: str) -> str | None:
    return name if any(one["ChannelName"] == name for one in body.get("InputDataConfig", ())) else None
