"""The checks of a request, including those of its queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from cloudtrain.aws.aws import Aws
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import Check, Finding, failed, ok
from cloudtrain.platforms.sagemaker.doctor.account import (
    Account,
    check_action,
    check_credentials,
    check_pass_role,
    check_permission,
    check_role,
    check_trust,
    unknown_if_denied,
)
from cloudtrain.platforms.sagemaker.doctor.resources import (
    Wanted,
    check_bucket,
    check_default_bucket,
    check_image,
    check_imports,
    check_input,
    check_quota,
    check_s3_route,
    check_security_groups,
    check_subnets,
)
from cloudtrain.platforms.sagemaker.queue.request import training_request
from cloudtrain.spec import TrainingJob


def checks(
    aws: Aws, job: TrainingJob, request: Request | None, imports: Sequence[str]
) -> Mapping[str, Check]:
    """All checks by name. Each sends its own requests to AWS, and is ``UNKNOWN`` if the caller is not allowed to.

    Without ``request``, only the account and the user's default role are checked.
    """
    account = Account(aws)
    found: dict[str, Check] = {"credentials": partial(check_credentials, account)}
    body = training_request(request.body) if request else {}
    found.update(queue_checks(account, request.body if request else {}))
    found.update(_access(account, body.get("RoleArn") or job.role))
    if not request:
        found["default bucket"] = partial(check_default_bucket, account)
    found.update(_storage(account, job, body))
    found.update(_image(account, body, imports))
    found.update(_quotas(account, body))
    found.update(_network(account, body.get("VpcConfig", {})))
    # without credentials, the check of the credentials fails, and the result of the others is unknown
    return {
        name: check if name == "credentials" else unknown_if_denied(check) for name, check in found.items()
    }


def _access(account: Account, role: str | None) -> Iterator[tuple[str, Check]]:
    yield "create jobs", partial(check_permission, account)
    if role:
        yield "role", partial(check_role, account, role)
        yield "role: trust", partial(check_trust, account, role)
        yield "role: pass", partial(check_pass_role, account, role)


def _storage(account: Account, job: TrainingJob, body: Mapping[str, Any]) -> Iterator[tuple[str, Check]]:
    places = [
        body.get("OutputDataConfig", {}).get("S3OutputPath"),
        body.get("CheckpointConfig", {}).get("S3Uri"),
        job.source.uri if job.source and body else None,
    ]
    buckets = dict.fromkeys(_bucket(uri) for uri in places if uri)
    for channel in body.get("InputDataConfig", []):
        source = channel["DataSource"].get("S3DataSource")
        if source and channel["ChannelName"] in job.channels:  # submit() uploads the others
            buckets.setdefault(_bucket(source["S3Uri"]))
            yield f"input {channel['ChannelName']}", partial(check_input, account, source["S3Uri"])
    for bucket in buckets:
        yield f"bucket {bucket}", partial(check_bucket, account, bucket)


def _bucket(uri: str) -> str:
    return uri.removeprefix("s3://").partition("/")[0]


def _image(account: Account, body: Mapping[str, Any], imports: Sequence[str]) -> Iterator[tuple[str, Check]]:
    algorithm = body.get("AlgorithmSpecification", {})
    image = algorithm.get("TrainingImage")
    if image:
        mode = algorithm.get("TrainingImageConfig", {}).get("TrainingRepositoryAccessMode")
        yield "image", partial(check_image, account, image, private_registry=mode == "Vpc")
        if imports:
            yield "imports", partial(check_imports, image, imports)


def _quotas(account: Account, body: Mapping[str, Any]) -> Iterator[tuple[str, Check]]:
    resources = body.get("ResourceConfig", {})
    if resources.get("TrainingPlanArn"):
        return  # its capacity is reserved
    kind = "spot training job" if body.get("EnableManagedSpotTraining") else "training job"
    counts: dict[str, int] = {}
    several = [*resources.get("InstanceGroups", ()), *resources.get("InstancePreferences", ())]
    for group in several or [resources]:
        if "InstanceType" in group and "TrainingPlanArns" not in group:
            count = group.get("InstanceCount", resources.get("InstanceCount"))
            counts[group["InstanceType"]] = counts.get(group["InstanceType"], 0) + count
    for instance_type, count in counts.items():
        yield f"quota {instance_type}", partial(check_quota, account, Wanted(instance_type, kind, count))
        if resources.get("KeepAlivePeriodInSeconds"):
            wanted = Wanted(instance_type, "training warm pool", count, is_needed=False)
            yield f"quota {instance_type}: warm pool", partial(check_quota, account, wanted)


def _network(account: Account, vpc: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Check]]:
    if vpc:
        subnets, groups = vpc["Subnets"], vpc["SecurityGroupIds"]
        yield "subnets", partial(check_subnets, account, subnets)
        yield "security groups", partial(check_security_groups, account, groups, subnets)
        yield "S3 from the subnets", partial(check_s3_route, account, subnets)


KIND = "SAGEMAKER_TRAINING"


def queue_checks(account: Account, body: Mapping[str, Any]) -> Iterator[tuple[str, Check]]:
    """The checks of a SubmitServiceJob request; none for any other."""
    if "jobQueue" in body:
        queue = body["jobQueue"]
        yield "queue jobs", partial(check_action, account, "batch:SubmitServiceJob")
        yield "queue", partial(check_queue, account, queue, body)


def check_queue(account: Account, name: str, body: Mapping[str, Any]) -> Finding:
    """Check that the queue exists, accepts training jobs, and has the kind of share that the request uses."""
    client = account.client("batch")
    found = client.describe_job_queues(jobQueues=[name])["jobQueues"]
    if not found:
        return failed(f"there is no queue {name} in {account.region}", _others(client))
    queue = found[0]
    if queue.get("jobQueueType") != KIND:
        kind = queue.get("jobQueueType", "of another kind")
        return failed(f"the queue {name} is {kind}, and takes no training jobs", _others(client))
    if queue["state"] != "ENABLED" or queue.get("status") not in (None, "VALID", "UPDATING"):
        said = f": {queue['statusReason']}" if queue.get("statusReason") else ""
        return failed(
            f"the queue {name} is {queue['state']} and {queue.get('status')}{said}",
            f"Enable it: aws batch update-job-queue --state ENABLED --job-queue {name}",
        )
    return _check_shares(queue, body)


def _check_shares(queue: Mapping[str, Any], body: Mapping[str, Any]) -> Finding:
    name = queue["jobQueueName"]
    has_share = bool(body.get("shareIdentifier") or body.get("quotaShareName"))
    if queue.get("schedulingPolicyArn") and not has_share:
        return failed(
            f"the queue {name} has a scheduling policy, and the job names no share",
            "Set platform_options.share_identifier for a fair-share policy, quota_share_name for quota shares.",
        )
    if body.get("shareIdentifier") and not queue.get("schedulingPolicyArn"):
        return failed(
            f"the queue {name} has no fair-share policy", "Remove platform_options.share_identifier."
        )
    return ok(f"{name} takes training jobs")


def _others(client: Any) -> str:
    """A hint with the queues that accept training jobs."""
    pages = client.get_paginator("describe_job_queues").paginate()
    queues = [queue for page in pages for queue in page["jobQueues"] if queue.get("jobQueueType") == KIND]
    names = ", ".join(sorted(queue["jobQueueName"] for queue in queues))
    return (
        f"Set platform_options.job_queue to one of: {names}"
        if names
        else f"Create a queue of type {KIND}, with a service environment: aws batch create-job-queue help"
    )
