"""Checks of the queue that a job goes through."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.sagemaker.doctor.account import Account, check_action

KIND = "SAGEMAKER_TRAINING"


def queue_checks(account: Account, body: Mapping[str, Any]) -> Iterator[tuple[str, Check]]:
    """The checks of a SubmitServiceJob request; none for any other."""
    if "jobQueue" in body:
        queue = body["jobQueue"]
        yield "queue jobs", partial(check_action, account, "batch:SubmitServiceJob")
        yield "queue", partial(check_queue, account, queue, body)


def check_queue(account: Account, name: str, body: Mapping[str, Any]) -> Finding:
    """Check that the queue exists, takes training jobs, and has the kind of shares that the request names."""
    client = account.client("batch")
    found = client.describe_job_queues(jobQueues=[name])["jobQueues"]
    if not found:
        return Finding(CheckStatus.FAILED, f"there is no queue {name} in {account.region}", _others(client))
    queue = found[0]
    if queue.get("jobQueueType") != KIND:
        kind = queue.get("jobQueueType", "of another kind")
        return Finding(
            CheckStatus.FAILED, f"the queue {name} is {kind}, and takes no training jobs", _others(client)
        )
    if queue["state"] != "ENABLED" or queue.get("status") not in (None, "VALID", "UPDATING"):
        said = f": {queue['statusReason']}" if queue.get("statusReason") else ""
        return Finding(
            CheckStatus.FAILED,
            f"the queue {name} is {queue['state']} and {queue.get('status')}{said}",
            f"Enable it: aws batch update-job-queue --state ENABLED --job-queue {name}",
        )
    return _check_shares(queue, body)


def _check_shares(queue: Mapping[str, Any], body: Mapping[str, Any]) -> Finding:
    name = queue["jobQueueName"]
    has_share = bool(body.get("shareIdentifier") or body.get("quotaShareName"))
    if queue.get("schedulingPolicyArn") and not has_share:
        return Finding(
            CheckStatus.FAILED,
            f"the queue {name} has a scheduling policy, and the job names no share",
            "Set platform_options.share_identifier for a fair-share policy, quota_share_name for quota shares.",
        )
    if body.get("shareIdentifier") and not queue.get("schedulingPolicyArn"):
        return Finding(
            CheckStatus.FAILED,
            f"the queue {name} has no fair-share policy",
            "Remove platform_options.share_identifier.",
        )
    return Finding(CheckStatus.OK, f"{name} takes training jobs")


def _others(client: Any) -> str:
    """A hint with the queues that take training jobs."""
    pages = client.get_paginator("describe_job_queues").paginate()
    queues = [queue for page in pages for queue in page["jobQueues"] if queue.get("jobQueueType") == KIND]
    names = ", ".join(sorted(queue["jobQueueName"] for queue in queues))
    return (
        f"Set platform_options.job_queue to one of: {names}"
        if names
        else f"Create a queue of type {KIND}, with a service environment: aws batch create-job-queue help"
    )
