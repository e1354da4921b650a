"""The checks of SageMaker jobs, against AWS's own services as moto plays them."""

from __future__ import annotations

import json
from typing import Any

import boto3
import msgspec
import pytest
from scripted_job import REGION

from cloudtrain.aws.aws import Aws
from cloudtrain.platforms import CheckStatus, Finding, Request, run_checks
from cloudtrain.platforms.sagemaker.doctor import checks
from cloudtrain.spec import Source, TrainingJob

ACCOUNT = "123456789012"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/training/Trainer"
REGISTRY = f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com"
TRUST: dict[str, Any] = {
    "Effect": "Allow",
    "Principal": {"Service": "sagemaker.amazonaws.com"},
    "Action": "sts:AssumeRole",
}

pytestmark = pytest.mark.usefixtures("moto")


def client(service: str) -> Any:
    return boto3.client(service)  # type: ignore[call-overload]


def find(body: dict[str, Any], imports: tuple[str, ...] = (), **job: Any) -> dict[str, Finding]:
    source = job.pop("source", None)
    description = msgspec.structs.replace(TrainingJob.from_dict(job), source=source)
    return dict(run_checks(checks(Aws(), description, Request("sagemaker", "job", body), imports)))


def make_role(*statements: dict[str, Any]) -> None:
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    client("iam").create_role(
        RoleName="Trainer", Path="/training/", AssumeRolePolicyDocument=json.dumps(document)
    )


def channel(name: str, uri: str) -> dict[str, Any]:
    return {
        "ChannelName": name,
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
    }


def test_credentials_name_the_caller_and_the_region() -> None:
    found = find({})["credentials"]
    assert found.status == CheckStatus.OK
    assert found.what.startswith(f"arn:aws:sts::{ACCOUNT}:") and found.what.endswith(f" in {REGION}")


def test_without_credentials_one_check_fails_and_the_rest_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    found = find({"RoleArn": ROLE, "OutputDataConfig": {"S3OutputPath": "s3://b/out"}})
    assert found["credentials"].status == CheckStatus.FAILED
    assert found["credentials"].hint
    assert {finding.status for name, finding in found.items() if name != "credentials"} == {
        CheckStatus.UNKNOWN
    }


def test_without_a_region_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    found = find({"RoleArn": ROLE})
    assert "AWS_DEFAULT_REGION" in found["credentials"].hint
    assert found["role"].status == CheckStatus.UNKNOWN


def test_a_role_that_sagemaker_may_assume() -> None:
    make_role(TRUST)
    found = find({"RoleArn": ROLE})
    assert found["role"] == Finding(CheckStatus.OK, ROLE)
    assert found["role: trust"].status == CheckStatus.OK


@pytest.mark.parametrize(
    "statement",
    [
        {**TRUST, "Principal": {"Service": "ec2.amazonaws.com"}},
        {**TRUST, "Principal": {"AWS": "*"}},
        {**TRUST, "Effect": "Deny"},
        {**TRUST, "Action": ["sts:TagSession"]},
    ],
)
def test_a_role_that_sagemaker_may_not_assume(statement: dict[str, Any]) -> None:
    make_role(statement)
    found = find({"RoleArn": ROLE})["role: trust"]
    assert found.status == CheckStatus.FAILED
    assert "sagemaker.amazonaws.com" in found.hint


def test_a_role_that_is_not_there() -> None:
    found = find({"RoleArn": ROLE})
    assert {found[name].status for name in ("role", "role: trust", "role: pass")} == {CheckStatus.FAILED}
    assert ROLE in found["role"].what


def test_buckets() -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="here")
    elsewhere = {"LocationConstraint": "eu-west-1"}
    s3.create_bucket(Bucket="elsewhere", CreateBucketConfiguration=elsewhere)
    found = find(
        {
            "OutputDataConfig": {"S3OutputPath": "s3://here/out"},
            "CheckpointConfig": {"S3Uri": "s3://elsewhere/run"},
            "InputDataConfig": [channel("train", "s3://nowhere/train")],
        },
        inputs={"train": "s3://nowhere/train"},
        source=Source(f"s3://sagemaker-{REGION}-{ACCOUNT}/source/sourcedir.tar.gz", "0" * 64),
    )
    assert found["bucket here"].status == CheckStatus.OK
    assert found["bucket elsewhere"].status == CheckStatus.FAILED
    assert "eu-west-1" in found["bucket elsewhere"].what
    assert found["bucket nowhere"].status == CheckStatus.FAILED
    assert found["input train"].status == CheckStatus.FAILED
    # the default one is made when it is missing
    assert found[f"bucket sagemaker-{REGION}-{ACCOUNT}"].status == CheckStatus.OK


def test_an_input_without_objects_fails() -> None:
    s3 = client("s3")
    s3.create_bucket(Bucket="data")
    s3.put_object(Bucket="data", Key="train/part-0", Body=b"1")
    uris = {"train": "s3://data/train", "test": "s3://data/test"}
    body = {"InputDataConfig": [channel(name, uri) for name, uri in {**uris, "code": "s3://data/x"}.items()]}
    found = find(body, inputs=uris)
    assert found["input train"].status == CheckStatus.OK
    assert found["input test"].status == CheckStatus.FAILED
    assert "input code" not in found  # cloudtrain's channel, uploaded when the job is submitted


def make_image() -> None:
    ecr = client("ecr")
    ecr.create_repository(repositoryName="mine")
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
        "config": {"digest": "sha256:" + "0" * 64, "size": 1},
        "layers": [],
    }
    ecr.put_image(repositoryName="mine", imageManifest=json.dumps(manifest), imageTag="v1")


@pytest.mark.parametrize(
    ("image", "outcome", "words"),
    [
        (f"{REGISTRY}/mine:v1", CheckStatus.OK, "mine:v1"),
        (f"{REGISTRY}/mine:v2", CheckStatus.FAILED, "no image v2 in mine"),
        (f"{REGISTRY}/mine", CheckStatus.FAILED, "no image latest in mine"),
        (f"{REGISTRY}/yours:v1", CheckStatus.FAILED, "no repository yours"),
        (f"999999999999.dkr.ecr.{REGION}.amazonaws.com/yours:v1", CheckStatus.WARNING, "no repository yours"),
        (f"{ACCOUNT}.dkr.ecr.eu-west-1.amazonaws.com/mine:v1", CheckStatus.FAILED, "eu-west-1"),
        ("python:3.12", CheckStatus.FAILED, "not in Amazon ECR"),
    ],
)
def test_image(image: str, outcome: CheckStatus, words: str) -> None:
    make_image()
    found = find({"AlgorithmSpecification": {"TrainingImage": image}})["image"]
    assert found.status == outcome
    assert words in found.what


def test_a_private_registry_cannot_be_queried() -> None:
    algorithm = {
        "TrainingImage": "registry.example.com/mine",
        "TrainingImageConfig": {"TrainingRepositoryAccessMode": "Vpc"},
    }
    assert find({"AlgorithmSpecification": algorithm})["image"].status == CheckStatus.UNKNOWN


@pytest.mark.parametrize(
    ("repository", "outcome"),
    [
        ("pytorch-training:2.5.1-cpu-py311", CheckStatus.WARNING),
        ("huggingface-pytorch-training:2.1", CheckStatus.WARNING),
        ("tensorflow-training:2.18", CheckStatus.WARNING),
        ("mine:v1", CheckStatus.UNKNOWN),
    ],
)
def test_imports_against_the_image(repository: str, outcome: CheckStatus) -> None:
    algorithm = {"TrainingImage": f"{REGISTRY}/{repository}"}
    found = find({"AlgorithmSpecification": algorithm}, ("rare_module", "numpy"))["imports"]
    assert found.status == outcome
    assert "rare_module" in found.what
    assert ("numpy" in found.what) == (outcome == CheckStatus.UNKNOWN)


class Network:
    """A VPC with one subnet and one security group."""

    def __init__(self) -> None:
        self.ec2 = client("ec2")
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        subnet = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock="10.0.0.0/24")
        self.subnet = subnet["Subnet"]["SubnetId"]
        self.group = self.ec2.create_security_group(GroupName="g", Description="g", VpcId=self.vpc)["GroupId"]
        tables = self.ec2.describe_route_tables(Filters=[{"Name": "vpc-id", "Values": [self.vpc]}])
        self.table = tables["RouteTables"][0]["RouteTableId"]

    @property
    def config(self) -> dict[str, Any]:
        return {"VpcConfig": {"Subnets": [self.subnet], "SecurityGroupIds": [self.group]}}


def test_a_vpc_with_an_endpoint_of_s3() -> None:
    network = Network()
    service = f"com.amazonaws.{REGION}.s3"
    network.ec2.create_vpc_endpoint(VpcId=network.vpc, ServiceName=service, RouteTableIds=[network.table])
    found = find(network.config)
    for name in ("subnets", "security groups", "S3 from the subnets"):
        assert found[name].status == CheckStatus.OK, name


def test_a_vpc_with_a_nat_gateway() -> None:
    network = Network()
    gateway = network.ec2.create_nat_gateway(SubnetId=network.subnet, ConnectivityType="private")
    route = {"DestinationCidrBlock": "0.0.0.0/0", "NatGatewayId": gateway["NatGateway"]["NatGatewayId"]}
    network.ec2.create_route(RouteTableId=network.table, **route)
    assert find(network.config)["S3 from the subnets"].status == CheckStatus.OK


def test_a_vpc_without_a_way_to_s3() -> None:
    network = Network()
    gateway = network.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    network.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=network.vpc)
    route = {"DestinationCidrBlock": "0.0.0.0/0", "GatewayId": gateway}
    network.ec2.create_route(RouteTableId=network.table, **route)
    found = find(network.config)["S3 from the subnets"]
    assert found.status == CheckStatus.FAILED
    assert network.subnet in found.what and f"com.amazonaws.{REGION}.s3" in found.hint


def test_subnets_and_groups_that_are_not_there() -> None:
    # only one subnet: with two, moto reports either of them as missing
    vpc = {"Subnets": ["subnet-0123456789"], "SecurityGroupIds": ["sg-0123456789"]}
    found = find({"VpcConfig": vpc})
    assert found["subnets"].what == "there is no subnet subnet-0123456789"
    assert found["security groups"].what == "there is no security group sg-0123456789"
    assert found["S3 from the subnets"].status == CheckStatus.UNKNOWN


def test_subnets_and_groups_of_several_vpcs() -> None:
    one, other = Network(), Network()
    vpc = {"Subnets": [one.subnet, other.subnet], "SecurityGroupIds": [one.group]}
    assert "several VPCs" in find({"VpcConfig": vpc})["subnets"].what
    vpc = {"Subnets": [one.subnet], "SecurityGroupIds": [other.group]}
    assert other.group in find({"VpcConfig": vpc})["security groups"].what
