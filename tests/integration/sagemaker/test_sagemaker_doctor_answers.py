"""The checks of SageMaker jobs, against answers of services that moto does not play, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber
from scripted_job import REGION

from cloudtrain.aws.aws import Aws
from cloudtrain.errors import PlatformError
from cloudtrain.platforms import CheckStatus, Finding, HostOffer, Request, run_checks
from cloudtrain.platforms.sagemaker import SageMakerPlatform
from cloudtrain.platforms.sagemaker.doctor import checks
from cloudtrain.spec import TrainingJob

ROLE = "arn:aws:iam::123456789012:role/Trainer"
USER = "arn:aws:iam::123456789012:user/someone"
CREATED = "2026-01-01T00:00:00Z"


class Stubbed:
    """An account whose services give the answers that are queued, and nothing else."""

    def __init__(self, stack: ExitStack) -> None:
        session = boto3.Session("id", "secret", region_name=REGION)
        self._aws = Aws(session)
        self._stack = stack
        self._stubs: dict[str, Stubber] = {}

    def __getitem__(self, service: str) -> Stubber:
        if service not in self._stubs:
            self._stubs[service] = self._stack.enter_context(Stubber(self._aws.client(service)))
        return self._stubs[service]

    def be(self, arn: str) -> None:
        answer = {"Arn": arn, "Account": "123456789012", "UserId": "u"}
        self["sts"].add_response("get_caller_identity", answer)

    def offers(self) -> list[HostOffer]:
        return SageMakerPlatform(SimpleNamespace(aws=self._aws)).offers()

    def find(self, name: str, body: dict[str, Any], **job: Any) -> Finding:
        found = checks(self._aws, TrainingJob.from_dict(job), Request("sagemaker", "job", body), ())
        return dict(run_checks({name: found[name]}))[name]


@pytest.fixture
def account() -> Iterator[Stubbed]:
    with ExitStack() as stack:
        yield Stubbed(stack)


def role(name: str, arn: str) -> dict[str, Any]:
    return {"Role": {"Path": "/", "RoleName": name, "RoleId": "A" * 16, "Arn": arn, "CreateDate": CREATED}}


def decision(word: str) -> dict[str, Any]:
    return {"EvaluationResults": [{"EvalActionName": "iam:PassRole", "EvalDecision": word}]}


@pytest.mark.parametrize(
    ("word", "outcome"),
    [("allowed", CheckStatus.OK), ("implicitDeny", CheckStatus.FAILED), ("explicitDeny", CheckStatus.FAILED)],
)
def test_a_user_who_passes_the_role(account: Stubbed, word: str, outcome: CheckStatus) -> None:
    account.be(USER)
    account["iam"].add_response("get_role", role("Trainer", ROLE), {"RoleName": "Trainer"})
    context = {
        "ContextKeyName": "iam:PassedToService",
        "ContextKeyValues": ["sagemaker.amazonaws.com"],
        "ContextKeyType": "string",
    }
    question = {
        "PolicySourceArn": USER,
        "ActionNames": ["iam:PassRole"],
        "ResourceArns": [ROLE],
        "ContextEntries": [context],
    }
    account["iam"].add_response("simulate_principal_policy", decision(word), question)
    assert account.find("role: pass", {"RoleArn": ROLE}).status == outcome


def test_an_assumed_role_is_checked_as_that_role(account: Stubbed) -> None:
    account.be("arn:aws:sts::123456789012:assumed-role/Developer/session")
    whole = "arn:aws:iam::123456789012:role/with/a/path/Developer"
    account["iam"].add_response("get_role", role("Developer", whole), {"RoleName": "Developer"})
    question = {
        "PolicySourceArn": whole,
        "ActionNames": ["sagemaker:CreateTrainingJob"],
        "ResourceArns": ["*"],
        "ContextEntries": [],
    }
    account["iam"].add_response("simulate_principal_policy", decision("allowed"), question)
    assert account.find("create jobs", {}).status == CheckStatus.OK


def test_the_root_user_is_not_simulated(account: Stubbed) -> None:
    account.be("arn:aws:iam::123456789012:root")
    assert account.find("create jobs", {}).status == CheckStatus.OK


@pytest.mark.parametrize(
    ("name", "service", "operation", "code", "body"),
    [
        ("role", "iam", "get_role", "AccessDenied", {"RoleArn": ROLE}),
        ("role: trust", "iam", "get_role", "AccessDenied", {"RoleArn": ROLE}),
        ("bucket b", "s3", "head_bucket", "403", {"OutputDataConfig": {"S3OutputPath": "s3://b"}}),
        (
            "image",
            "ecr",
            "batch_get_image",
            "AccessDeniedException",
            {
                "AlgorithmSpecification": {
                    "TrainingImage": f"763104351884.dkr.ecr.{REGION}.amazonaws.com/pytorch-training:9"
                }
            },
        ),
        (
            "quota ml.m5.large",
            "service-quotas",
            "list_service_quotas",
            "AccessDeniedException",
            {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1}},
        ),
        (
            "subnets",
            "ec2",
            "describe_subnets",
            "UnauthorizedOperation",
            {"VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]}},
        ),
    ],
)
def test_facts_that_the_caller_may_not_read_are_unknown(
    account: Stubbed, name: str, service: str, operation: str, code: str, body: dict[str, Any]
) -> None:
    account[service].add_client_error(operation, code)
    found = account.find(name, body)
    assert found.status == CheckStatus.UNKNOWN
    assert found.what.startswith("you may not call ")


def quotas(*values: tuple[str, float]) -> dict[str, Any]:
    return {"Quotas": [{"QuotaName": name, "QuotaCode": "L-1234", "Value": value} for name, value in values]}


@pytest.mark.parametrize(
    ("resources", "spot", "name", "quota", "outcome"),
    [
        ({}, False, "quota ml.m5.large", ("ml.m5.large for training job usage", 2), CheckStatus.OK),
        ({}, False, "quota ml.m5.large", ("ml.m5.large for training job usage", 1), CheckStatus.FAILED),
        ({}, True, "quota ml.m5.large", ("ml.m5.large for spot training job usage", 0), CheckStatus.FAILED),
        ({}, True, "quota ml.m5.large", ("ml.m5.large for spot training job usage", 2), CheckStatus.OK),
        ({}, False, "quota ml.m5.large", ("ml.m5.xlarge for training job usage", 9), CheckStatus.WARNING),
        # a job without its warm pool runs all the same
        (
            {"KeepAlivePeriodInSeconds": 60},
            False,
            "quota ml.m5.large: warm pool",
            ("ml.m5.large for training warm pool usage", 0),
            CheckStatus.WARNING,
        ),
    ],
)
def test_quotas(
    account: Stubbed,
    resources: dict[str, Any],
    spot: bool,
    name: str,
    quota: tuple[str, float],
    outcome: CheckStatus,
) -> None:
    stub = account["service-quotas"]
    first = {**quotas(("ml.m5.large for processing job usage", 9)), "NextToken": "more"}
    stub.add_response("list_service_quotas", first, {"ServiceCode": "sagemaker", "MaxResults": 100})
    question = {"ServiceCode": "sagemaker", "MaxResults": 100, "NextToken": ANY}
    stub.add_response("list_service_quotas", quotas(quota), question)
    resources = {"InstanceType": "ml.m5.large", "InstanceCount": 2, **resources}
    found = account.find(name, {"ResourceConfig": resources, "EnableManagedSpotTraining": spot})
    assert found.status == outcome
    if outcome == CheckStatus.FAILED:
        assert "L-1234" in found.hint


def test_hosts_are_offered_by_the_quotas_of_training_jobs(account: Stubbed) -> None:
    names = ("ml.p5.48xlarge for training job usage", "ml.p5.48xlarge for spot training job usage")
    account["service-quotas"].add_response("list_service_quotas", quotas((names[0], 2), (names[1], 9)))
    assert account.offers() == [HostOffer(REGION, "ml.p5.48xlarge", hosts=2)]
    account["service-quotas"].add_client_error("list_service_quotas", "AccessDeniedException")
    with pytest.raises(PlatformError, match="quotas"):
        account.offers()


def test_the_groups_of_one_type_share_a_quota(account: Stubbed) -> None:
    stub = account["service-quotas"]
    stub.add_response("list_service_quotas", quotas(("ml.m5.large for training job usage", 3)))
    groups = [{"InstanceGroupName": name, "InstanceType": "ml.m5.large", "InstanceCount": 2} for name in "ab"]
    found = account.find("quota ml.m5.large", {"ResourceConfig": {"InstanceGroups": groups}})
    assert found.status == CheckStatus.FAILED
    assert "is 3, 4 needed" in found.what


def test_a_service_that_cannot_be_reached_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    session = boto3.Session("id", "secret", region_name=REGION)
    body = {"ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1}}
    found = checks(Aws(session), TrainingJob(), Request("sagemaker", "job", body), ())
    assert dict(run_checks({"quota": found["quota ml.m5.large"]}))["quota"].status == CheckStatus.UNKNOWN
