"""`cloudtrain.sagemaker.debugger`: what golden requests do not show."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from cloudtrain import Estimator, PyTorch
from cloudtrain.errors import InvalidJob
from cloudtrain.sagemaker.debugger import (
    FrameworkProfile,
    ProfilerConfig,
    ProfilerRule,
    Rule,
    rule_configs,
)
from cloudtrain.sagemaker.huggingface import TrainingCompilerConfig

pytestmark = pytest.mark.usefixtures("region")

ROLE = "arn:aws:iam::123456789012:role/Train"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/rules:1"


def torch(tmp_path: Path, version: str = "1.13.1", **arguments: Any) -> Estimator:
    (tmp_path / "train.py").write_text("")
    python = "py39" if version == "1.13.1" else "py310"
    fixed = {"role": ROLE, "instance_type": "ml.g5.xlarge", "py_version": python}
    return PyTorch(str(tmp_path / "train.py"), framework_version=version, **fixed, **arguments)


@mock_aws
def test_the_file_of_a_rule_is_uploaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("class Mine: pass\n")
    monkeypatch.chdir(tmp_path)
    rule = Rule.custom("mine", IMAGE, "ml.t3.medium", 10, "mine.py", "Mine")
    submission = torch(tmp_path, rules=[rule]).prepare()
    submission.submit()
    uri = submission.request.body["DebugRuleConfigurations"][0]["RuleParameters"]["source_s3_uri"]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    found = boto3.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    assert key.endswith("/mine.py") and found == b"class Mine: pass\n"


def test_a_file_of_a_rule_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    rule = Rule.custom("mine", IMAGE, "ml.t3.medium", 10, (tmp_path / "no.py").as_uri(), "Mine")
    with mock_aws(), pytest.raises(InvalidJob, match=r"rules\[0\]: there is no file or folder .*no.py"):
        torch(tmp_path, rules=[rule]).prepare()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"compiler_config": TrainingCompilerConfig()},
            "AWS makes no new releases of SageMaker Training Compiler",
        ),
        (
            {
                "version": "2.0.1",
                "profiler_config": ProfilerConfig(framework_profile_params=FrameworkProfile()),
            },
            "AWS has retired framework profiling, and its images of pytorch 2.0.1 do not have it",
        ),
    ],
)
def test_what_aws_has_retired_is_warned_of(tmp_path: Path, arguments: dict[str, Any], says: str) -> None:
    with mock_aws():
        assert says in "\n".join(torch(tmp_path, **arguments).prepare().job_warnings)


def test_framework_profiling_that_an_image_has_is_not_warned_of(tmp_path: Path) -> None:
    with mock_aws(), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # the submission, which holds a lock, is not used
        config = ProfilerConfig(framework_profile_params=FrameworkProfile())
        assert torch(tmp_path, profiler_config=config).prepare().job_warnings == []


def test_other_platforms_warn_that_the_fields_have_no_effect(tmp_path: Path) -> None:
    rules = [ProfilerRule.sagemaker(rule_configs.ProfilerReport())]
    estimator = torch(tmp_path, rules=rules, compiler_config=TrainingCompilerConfig(), platform="local")
    found = "\n".join(estimator.prepare().job_warnings)
    assert "rules, compiler_config have no effect on local: only SageMaker uses such fields" in found


def test_a_parameter_that_a_rule_lacks_is_refused() -> None:
    with pytest.raises(TypeError, match="BatchSize has no parameter 'windw'; it has cpu_threshold_p95, "):
        rule_configs.BatchSize(windw=5)
    with pytest.raises(AttributeError, match="has no attribute 'vanishing_gradients'"):
        rule_configs.vanishing_gradients()
    with pytest.raises(InvalidJob, match="rule_to_invoke cannot be changed"):
        Rule.sagemaker(rule_configs.overfit(), rule_parameters={"rule_to_invoke": "Overtraining"})


def test_a_collection_of_a_rule_is_found_by_its_name() -> None:
    assert rule_configs.get_collection("losses") == {
        "CollectionName": "losses",
        "CollectionParameters": {"save_interval": "500"},
    }
    assert rule_configs.get_collection("mine") is None
    assert {"vanishing_gradient", "nlp_sequence_ratio", "ProfilerReport", "ActionList"} <= {
        *dir(rule_configs)
    }
