"""Checks of the resources of a job: buckets, inputs, instance quotas, image, subnets and security groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cloudtrain.aws.errors import aws_errors, error_code
from cloudtrain.aws.image_data import ECR
from cloudtrain.platforms.checks import MISSING_MODULES, CheckStatus, Finding, failed, ok, unknown, warning
from cloudtrain.platforms.sagemaker.describe import console
from cloudtrain.platforms.sagemaker.doctor.account import Account

MISSING = {"404", "NoSuchBucket", "NotFound"}


def check_default_bucket(account: Account) -> Finding:
    return check_bucket(account, account.default_bucket)


def check_bucket(account: Account, bucket: str) -> Finding:
    region = _bucket_region(account, bucket)
    if region is None and bucket == account.default_bucket:
        return ok("it is the default bucket, which is created by the first upload")
    if region is None:
        return failed(
            f"there is no bucket {bucket}", f"Create it: aws s3 mb s3://{bucket} --region {account.region}"
        )
    if region != account.region:
        return failed(
            f"{bucket} is in {region}, the job would run in {account.region}",
            "Use a bucket in the job's region, or set AWS_DEFAULT_REGION to the bucket's region.",
        )
    return ok(f"in {region}")


def check_input(account: Account, uri: str) -> Finding:
    """Check that a channel has at least one object: the job fails without one."""
    from botocore.exceptions import ClientError

    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    try:
        found = account.client("s3").list_objects_v2(Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except ClientError as error:
        if error_code(error) not in MISSING:
            raise
        return failed(f"there is no bucket {bucket}", "Check the URI of the channel.")
    if not found.get("Contents"):
        return failed(f"there is no object below {uri}", f"Check with: aws s3 ls {uri}")
    return ok(uri)


def _bucket_region(account: Account, bucket: str) -> str | None:
    """The region of a bucket; None if it does not exist."""
    from botocore.exceptions import ClientError

    try:
        found = account.client("s3").head_bucket(Bucket=bucket)
    except ClientError as error:
        if error_code(error) not in MISSING:
            raise
        return None
    return str(found.get("BucketRegion") or account.region)


PAGE = "servicequotas/home/services/sagemaker/quotas"


@dataclass(frozen=True)
class Wanted:
    """Instances of one type. ``kind`` is the name of the usage in Service Quotas."""

    instance_type: str
    kind: str
    count: int
    is_needed: bool = True
    """Whether the job fails without them. A warm pool is optional."""

    @property
    def quota_name(self) -> str:
        return f"{self.instance_type} for {self.kind} usage"


def check_quota(account: Account, wanted: Wanted) -> Finding:
    quota = _find_quota(account, wanted.quota_name)
    if quota is None:
        return warning(
            f"{account.region} has no quota {wanted.quota_name!r}",
            "Check the instance type, and that the region has it.",
        )
    value = int(quota["Value"])
    if value >= wanted.count:
        return ok(f"{value} instances, {wanted.count} needed; running instances are not counted")
    return Finding(
        CheckStatus.FAILED if wanted.is_needed else CheckStatus.WARNING,
        f"the quota {wanted.quota_name!r} is {value}, {wanted.count} needed",
        f"Request an increase: {console(account.region, account.partition)}/{PAGE}/{quota['QuotaCode']}",
    )


def training_quotas(account: Account) -> dict[str, int]:
    """The number of instances of each type that training jobs may use together. Raises PlatformError."""
    suffix = " for training job usage"
    with aws_errors("the quotas of the account"):
        return {
            quota["QuotaName"].removesuffix(suffix): int(quota["Value"])
            for quota in _quotas(account)
            if quota["QuotaName"].startswith("ml.") and quota["QuotaName"].endswith(suffix)
        }


def _find_quota(account: Account, name: str) -> dict[str, Any] | None:
    return next((quota for quota in _quotas(account) if quota["QuotaName"].lower() == name), None)


def _quotas(account: Account) -> Iterator[dict[str, Any]]:
    pages = account.client("service-quotas").get_paginator("list_service_quotas")
    for page in pages.paginate(ServiceCode="sagemaker", PaginationConfig={"PageSize": 100}):
        yield from page["Quotas"]


COMMON = (
    "awscli bokeh boto3 botocore click cloudpickle cmake cv2 cython cryptography dateutil h5py idna imageio "
    "jmespath joblib matplotlib mpi4py numba numpy packaging pandas pip PIL plotly psutil pybind11 requests "
    "s3transfer sagemaker sagemaker_training scipy seaborn setuptools shap six sklearn tqdm urllib3 werkzeug yaml"
)
"""The modules of AWS's training images for any framework, from the Dockerfiles of PyTorch 2.5 and TensorFlow 2.18 in
github.com/aws/deep-learning-containers, as of 2026-11-21."""

FRAMEWORKS = {
    "huggingface-pytorch": "accelerate datasets diffusers evaluate fsspec huggingface_hub safetensors tokenizers "
    "torch torchaudio torchvision transformers",
    "huggingface-tensorflow": "datasets evaluate huggingface_hub keras tensorflow tokenizers transformers",
    "pytorch": "accelerate fastai fsspec jinja2 networkx s3torchconnector spacy sympy thinc torch torchaudio "
    "torchtext torchtnt torchvision typing_extensions",
    "tensorflow": "absl google keras tensorboard tensorflow tensorflow_datasets tensorflow_io tensorflow_text",
    "mxnet": "gluoncv gluonnlp horovod mxnet",
}
"""Additional modules in the images of a framework. The lists may be outdated, so a missing module is only a warning."""


def check_image(account: Account, image: str, *, private_registry: bool) -> Finding:
    """Check the image by requesting its manifest, as SageMaker will."""
    from botocore.exceptions import ClientError

    parts = ECR.fullmatch(image)
    if not parts:
        if private_registry:
            return unknown(f"{image} is in a registry that only the VPC can reach")
        return failed(
            f"{image} is not in Amazon ECR",
            "Push it to ECR, or set training_repository_access_mode=Vpc, with subnets that reach its registry.",
        )
    if parts["region"] != account.region:
        return failed(
            f"the image is in {parts['region']}, the job would run in {account.region}",
            "Use an image in the job's region.",
        )
    wanted = {"imageDigest": parts["digest"]} if parts["digest"] else {"imageTag": parts["tag"] or "latest"}
    try:
        answer = account.client("ecr").batch_get_image(
            registryId=parts["registry"], repositoryName=parts["repository"], imageIds=[wanted]
        )
    except ClientError as error:
        if error_code(error) != "RepositoryNotFoundException":
            raise
        is_own = f":{parts['registry']}:" in account.caller
        return Finding(
            CheckStatus.FAILED if is_own else CheckStatus.WARNING,  # other accounts may be denied access
            f"account {parts['registry']} shows no repository {parts['repository']} in {parts['region']}",
            "Check the account, the region and the name in image_uri.",
        )
    if not answer.get("images"):
        return failed(
            f"there is no image {next(iter(wanted.values()))} in {parts['repository']}",
            f"To list its images: aws ecr list-images --registry-id {parts['registry']} "
            f"--repository-name {parts['repository']} --region {parts['region']}",
        )
    return ok(image)


def check_imports(image: str, imports: Sequence[str]) -> Finding:
    """Compare ``imports`` with the modules in AWS's images. For other images, the result is ``UNKNOWN``."""
    repository = image.rpartition("/")[2].partition(":")[0].partition("@")[0]
    framework = repository.partition("-training")[0]
    if framework not in FRAMEWORKS or not repository.endswith(("-training", "-training-neuronx")):
        return unknown(f"it is not known whether the image has {', '.join(imports)}")
    has = {*COMMON.split(), *FRAMEWORKS[framework].split()}
    missing = [name for name in imports if name not in has]
    if not missing:
        return ok(f"the image has {', '.join(imports)}")
    return warning(
        f"neither requirements.txt nor, as far as is known, {repository} has {', '.join(missing)}",
        MISSING_MODULES,
    )


def check_subnets(account: Account, subnets: Sequence[str]) -> Finding:
    found = _subnets(account, subnets)
    if isinstance(found, Finding):
        return found
    vpcs = {subnet["VpcId"] for subnet in found}
    if len(vpcs) > 1:
        return failed(
            f"the subnets are in several VPCs: {', '.join(sorted(vpcs))}", "Name subnets of one VPC."
        )
    zones = sorted({subnet["AvailabilityZone"] for subnet in found})
    return ok(f"in {vpcs.pop()}, {', '.join(zones)}")


def check_security_groups(account: Account, groups: Sequence[str], subnets: Sequence[str]) -> Finding:
    from botocore.exceptions import ClientError

    try:
        found = account.client("ec2").describe_security_groups(GroupIds=list(groups))["SecurityGroups"]
    except ClientError as error:
        return _missing(error, "security group", groups)
    places = _subnets(account, subnets)
    vpcs = set() if isinstance(places, Finding) else {subnet["VpcId"] for subnet in places}
    others = [group["GroupId"] for group in found if vpcs and group["VpcId"] not in vpcs]
    if others:
        return failed(
            f"{', '.join(others)} not in the VPC of the subnets, {', '.join(sorted(vpcs))}",
            "Name security groups of that VPC.",
        )
    return ok(", ".join(group["GroupName"] for group in found))


def check_s3_route(account: Account, subnets: Sequence[str]) -> Finding:
    """Check that hosts reach S3 through a VPC endpoint or a NAT gateway: hosts in a VPC have no public address."""
    found = _subnets(account, subnets)
    if isinstance(found, Finding):
        return unknown(found.what)
    ec2, vpc = account.client("ec2"), found[0]["VpcId"]
    in_vpc = {"Name": "vpc-id", "Values": [vpc]}
    service = {"Name": "service-name", "Values": [f"com.amazonaws.{account.region}.s3"]}
    endpoints = ec2.describe_vpc_endpoints(Filters=[in_vpc, service])["VpcEndpoints"]
    if any(endpoint.get("VpcEndpointType") == "Interface" for endpoint in endpoints):
        return ok(f"{vpc} has an interface endpoint of S3")
    tables = ec2.describe_route_tables(Filters=[in_vpc])["RouteTables"]
    served = {table for endpoint in endpoints for table in endpoint.get("RouteTableIds", [])}
    cut_off = [
        subnet["SubnetId"]
        for subnet in found
        if not ((table := _table_of(subnet["SubnetId"], tables)) and _leads_to_s3(table, served))
    ]
    if not cut_off:
        return ok("through an endpoint or a gateway of the VPC")
    return failed(
        f"there is no route from {', '.join(cut_off)} to S3",
        f"Add a gateway endpoint com.amazonaws.{account.region}.s3 to the route tables of these subnets of {vpc}.",
    )


def _subnets(account: Account, subnets: Sequence[str]) -> list[dict[str, Any]] | Finding:
    from botocore.exceptions import ClientError

    try:
        found: list[dict[str, Any]] = account.client("ec2").describe_subnets(SubnetIds=list(subnets))[
            "Subnets"
        ]
    except ClientError as error:
        return _missing(error, "subnet", subnets)
    return found


def _missing(error: Any, what: str, names: Sequence[str]) -> Finding:
    """The finding for names that do not exist. Re-raises other errors."""
    if not error_code(error).endswith((".NotFound", ".Malformed")):
        raise error
    named = [name for name in names if name in str(error)] or names
    return failed(f"there is no {what} {', '.join(named)}", f"Check the ids: {what}s belong to one region.")


def _table_of(subnet: str, tables: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The subnet's route table, or the main route table of its VPC."""
    main = None
    for table in tables:
        for association in table.get("Associations", []):
            if association.get("SubnetId") == subnet:
                return table
            main = table if association.get("Main") else main
    return main


def _leads_to_s3(table: dict[str, Any], served: set[str]) -> bool:
    if table["RouteTableId"] in served:
        return True
    # an internet gateway does not work for hosts without a public address
    return any(
        route.get("DestinationCidrBlock") == "0.0.0.0/0"
        and any(
            route.get(by) for by in ("NatGatewayId", "TransitGatewayId", "InstanceId", "NetworkInterfaceId")
        )
        for route in table.get("Routes", [])
    )
