"""Checks of S3: from this machine, and with which credentials the pods will come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from cloudtrain.errors import CloudtrainError
from cloudtrain.platforms.checks import Check, CheckStatus, Finding
from cloudtrain.platforms.common.channels import channel_entries
from cloudtrain.platforms.common.machine_checks import check_bucket, check_input, immediately
from cloudtrain.platforms.kubernetes.api.kinds import SERVICE_ACCOUNT
from cloudtrain.platforms.kubernetes.doctor.asking import Cluster
from cloudtrain.platforms.kubernetes.doctor.pods import PodSet
from cloudtrain.platforms.kubernetes.doctor.references import cloud_role
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import uri_scheme

CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_FULL_URI")


def storage_checks(job: TrainingJob) -> Iterator[tuple[str, Check]]:
    """The buckets and the inputs of the job, by the names of their checks."""
    for name, uri in _inputs(job).items():
        if uri_scheme(uri) == "s3":
            yield f"input {name}", partial(immediately, partial(check_input, name, uri))
    places = (job.output_path, job.checkpoint_s3_uri, job.code_location)
    buckets = {
        uri.removeprefix("s3://").partition("/")[0]: uri for uri in places if uri and uri_scheme(uri) == "s3"
    }
    for bucket, uri in buckets.items():
        yield f"bucket {bucket}", partial(immediately, partial(check_bucket, uri))


def uses_s3(job: TrainingJob) -> bool:
    """Whether the pods themselves read or write S3: the source reaches them by presigned URLs."""
    places = (job.output_path, job.checkpoint_s3_uri, *_inputs(job).values())
    return any(uri and uri_scheme(uri) == "s3" for uri in places)


def _inputs(job: TrainingJob) -> dict[str, str]:
    return {name: str(entry["uri"]) for name, entry in channel_entries(job).items()}


def check_credentials(pods: Sequence[PodSet], cluster: Cluster) -> Finding:
    """Where the pods get credentials for S3."""
    containers = [container for group in pods for container in group.spec.get("containers") or []]
    variables = {variable.get("name") for container in containers for variable in container.get("env") or []}
    if given := [name for name in CREDENTIALS if name in variables]:
        return Finding(CheckStatus.OK, f"the pods have {', '.join(given)}")
    if sources := [
        (source.get("secretRef") or {}).get("name")
        for one in containers
        for source in one.get("envFrom") or []
    ]:
        return Finding(
            CheckStatus.OK, f"the pods take variables from the Secret {', '.join(filter(None, sources))}"
        )
    name = str(pods[0].spec.get("serviceAccountName") or "default")
    role = ""
    try:
        if account := cluster.find(SERVICE_ACCOUNT, name):
            role = cloud_role(account)
    except CloudtrainError:
        return Finding(
            CheckStatus.UNKNOWN, f"the service account {name} may have a role for S3; you may not look"
        )
    if role:
        return Finding(CheckStatus.OK, f"the service account {name} has the role {role}")
    return Finding(
        CheckStatus.WARNING,
        f"nothing in the pods has credentials for S3, and the service account {name} has no role",
        "Unless the nodes or EKS Pod Identity have them: set platform_options.service_account, or "
        "secrets: [AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY].",
    )
