"""Jobs as steps of pipelines, against the recorded steps of the SageMaker SDK, versions 2 and 3."""

from __future__ import annotations

import json
import re
import subprocess
import warnings
from pathlib import Path
from typing import Any

import boto3
import pytest
from pipeline_variables import NAMES, Join, Parameter, ParameterString, evaluated

from cloudtrain import CloudtrainError, Estimator, InvalidJob, PyTorch, TensorFlow, TrainingInput
from cloudtrain.pipelines._placeholders import FIXED, TEXTS
from cloudtrain.pipelines._step import _Training

DATA = Path(__file__).parents[2] / "data" / "sdk_pipelines"
V2, V3 = (json.loads((DATA / f"{name}.json").read_text(encoding="utf-8")) for name in ("v2", "v3"))
NEEDS_SDK = {"options", "after_another_step", "sdk_inputs"}
"""Cases about the SDK's own classes: they run in the soak."""
CASES = {case["name"]: case for case in V2["cases"] if case["name"] not in NEEDS_SDK}

MLFLOW = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/a"
ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
IMAGE = {
    "image_uri": "my:1",
    "instance_type": "ml.m5.xlarge",
    "role": ROLE,
    "output_path": "s3://my-data/out",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a source. Steps whose role, output and image are known need no account."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("print(1)\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def normalised(value: Any) -> Any:
    """``value`` without the place of the source, which the SDK names after the pipeline."""
    return json.loads(re.sub(r"s3://[\w/.-]*sourcedir\.tar\.gz", "SOURCE", json.dumps(value)))


def run(code: str, prelude: str) -> tuple[Any, Any]:
    """The estimator and inputs of a case."""
    space: dict[str, Any] = {**NAMES, "session": None, "TrainingInput": TrainingInput}
    space.update({kind.__name__: kind for kind in (Estimator, PyTorch, TensorFlow)})
    exec(prelude, space)
    exec(code, space)
    return space["estimator"], space.get("inputs")


def arguments(inputs: Any = None, **fields: Any) -> dict[str, Any]:
    """Our step's arguments for a small job."""
    found: dict[str, Any] = evaluated(_Training("Train", Estimator(**{**IMAGE, **fields}), inputs).arguments)
    return found


@pytest.mark.parametrize("name", CASES)
def test_the_step_is_that_of_the_sdk(name: str, folder: Path, toolkit: None) -> None:
    case = CASES[name]
    ours = _Training("Train", *run(case["code"], V2["prelude"])).arguments
    assert normalised(evaluated(ours)) == normalised(case["step"]["Arguments"])


def test_the_variables_are_where_version_3_has_them(folder: Path, aws: None) -> None:
    [case] = V3["cases"]
    code = case["cloudtrain"].partition("\noptions")[0]
    ours = evaluated(_Training("Train", *run(code, V3["prelude"])).arguments)
    sdk = case["step"]["Arguments"]
    for field in ("RoleArn", "ResourceConfig", "StoppingCondition"):
        assert ours[field] == sdk[field]
    assert ours["OutputDataConfig"]["S3OutputPath"] == sdk["OutputDataConfig"]["S3OutputPath"]
    assert sdk["Environment"].items() <= ours["Environment"].items()
    channels = {found["ChannelName"]: found["DataSource"] for found in ours["InputDataConfig"]}
    for channel in sdk["InputDataConfig"][:2]:
        assert channels[channel["ChannelName"]] == channel["DataSource"]
    # hyperparameters are text: version 3 leaves a number a number, which CreateTrainingJob refuses
    for name, expression in sdk["HyperParameters"].items():
        joined = {"Std:Join": {"On": "", "Values": [expression]}}
        assert ours["HyperParameters"][name] == (expression if name == "name" else joined)


def test_a_pipeline_request_does_not_depend_on_the_time(folder: Path) -> None:
    job = {"entry_point": "train.py", "source_dir": "src", "instance_count": 2}
    assert arguments(**job) == arguments(**job)
    assert not [name for name in arguments(**job)["Environment"] if "JOB_NAME" in name]


def test_several_hosts_have_the_job_secret_for_any_number(folder: Path) -> None:
    job = {"entry_point": "train.py", "source_dir": "src", "instance_count": Parameter("Count")}
    found = arguments(**job)
    assert found["ResourceConfig"]["InstanceCount"] == {"Get": "Parameters.Count"}
    assert [one["ChannelName"] for one in found["InputDataConfig"]][-1] == "cloudtrain-secret"


def test_a_variable_inside_another_value_is_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cloudtrain.pipelines import _placeholders

    monkeypatch.setattr(
        _placeholders, "sdk_module", lambda name: type("functions", (), {"Join": Join})
    )  # the SDK's
    estimator = TensorFlow(
        entry_point="train.py",
        source_dir="src",
        code_location="s3://my-data/code",
        **{**IMAGE, "output_path": ParameterString("Output")},
    )
    found = evaluated(_Training("Train", estimator, None).arguments)
    joined = found["HyperParameters"]["model_dir"]["Std:Join"]["Values"]
    assert joined == ['"', {"Get": "Parameters.Output"}, '/Train/model"']


def test_a_secret_may_be_a_parameter_and_is_left_out_otherwise(folder: Path) -> None:
    found = arguments(environment={"HF_TOKEN": ParameterString("Token"), "A": "1"})
    assert found["Environment"] == {"HF_TOKEN": {"Get": "Parameters.Token"}, "A": "1"}
    with pytest.warns(UserWarning, match=r"^HF_TOKEN: left out.*Secrets Manager"):
        found = arguments(environment={"HF_TOKEN": "hf_" + 34 * "a", "A": "1"})
    assert found["Environment"] == {"A": "1"}


def test_names_with_dots_are_names(folder: Path) -> None:
    found = arguments(
        {"my.data": ParameterString("Data")}, hyperparameters={"model.lr": ParameterString("Lr")}
    )
    assert found["HyperParameters"] == {"model.lr": {"Get": "Parameters.Lr"}}
    assert found["InputDataConfig"][0]["DataSource"]["S3DataSource"]["S3Uri"] == {"Get": "Parameters.Data"}


def test_the_source_is_uploaded_once(folder: Path, aws: None) -> None:
    job = {**IMAGE, "entry_point": "train.py", "source_dir": "src"}
    training = _Training("Train", Estimator(**job), None)
    assert "Contents" not in boto3.client("s3").list_objects_v2(Bucket="my-data")
    training.upload()
    training.upload()
    keys = [found["Key"] for found in boto3.client("s3").list_objects_v2(Bucket="my-data")["Contents"]]
    assert [key.rpartition("/")[2] for key in keys] == ["cloudtrain.pyz", "sourcedir.tar.gz"]


REFUSED = {
    "name": (
        {"base_job_name": ParameterString("N")},
        "base_job_name: ParameterString is a pipeline variable, and",
    ),
    "version": ({"framework_version": ParameterString("V")}, "framework_version: ParameterString is"),
    "nested": ({"hyperparameters": {"a": [ParameterString("N")]}}, r"hyperparameters\.a\[0\]: Parameter"),
    "arguments": ({"arguments": [ParameterString("N")]}, r"arguments\[0\]: ParameterString is"),
    "script": (
        {"entry_point": ParameterString("N"), "source_dir": "src"},
        "entry_point: a pipeline variable can name a script only in a source",
    ),
    "type": (
        {"image_uri": None, "framework": "pytorch", "framework_version": "2.5.1", "py_version": "py311"}
        | {"instance_type": ParameterString("T")},
        "instance_type: ParameterString has no default_value",
    ),
    "platform": ({"platform": "local"}, "platform: a step of a pipeline runs on sagemaker"),
    "queue": ({"platform_options": {"job_queue": "q"}}, r"platform_options\.job_queue: a pipeline"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_name_that_cannot_be_a_variable_is_reported(case: str, folder: Path) -> None:
    fields, message = REFUSED[case]
    with pytest.raises(InvalidJob, match=message) as caught:
        arguments(**fields)
    assert caught.value.hint


@pytest.mark.parametrize("platform", ["local", "sagemaker"])
def test_a_job_with_variables_is_refused_outside_a_pipeline(folder: Path, platform: str) -> None:
    estimator = Estimator(**{**IMAGE, "platform": platform, "hyperparameters": {"n": Parameter("N")}})
    with pytest.raises(InvalidJob, match=r"hyperparameters\.n: Parameter is a pipeline variable") as caught:
        estimator.fit(wait=False)
    assert "cloudtrain.pipelines.TrainingStep" in caught.value.hint


def test_fit_starts_nothing_with_the_session_of_a_pipeline(folder: Path) -> None:
    kind = type("PipelineSession", (), {"__module__": "sagemaker.workflow.pipeline_context"})
    with pytest.raises(InvalidJob, match="a PipelineSession starts no jobs") as caught:
        Estimator(**IMAGE, sagemaker_session=kind()).fit()
    assert "TrainingStep(name, estimator, inputs)" in caught.value.hint


def test_an_image_by_position_may_be_a_variable(folder: Path) -> None:
    estimator = Estimator(ParameterString("Image"), ROLE, 1, "ml.m5.xlarge", output_path="s3://my-data/out")
    found = evaluated(_Training("Train", estimator, None).arguments)
    assert found["AlgorithmSpecification"]["TrainingImage"] == {"Get": "Parameters.Image"}


def test_without_the_sdk_the_error_names_what_to_install(folder: Path) -> None:
    from cloudtrain.pipelines import TrainingStep

    with pytest.raises(CloudtrainError, match="needs the SageMaker SDK") as caught:
        TrainingStep("Train", Estimator(**IMAGE))
    assert "pip install" in caught.value.hint


@pytest.mark.parametrize("field", [*TEXTS, *FIXED])
def test_every_field_that_takes_a_variable_has_a_place_in_the_request(field: str, folder: Path) -> None:
    """Each of them, alone, in a job that has what the field needs."""
    variable = ParameterString("X", "ml.m5.xlarge")
    needs: dict[str, dict[str, Any]] = {
        "checkpoint_local_path": {"checkpoint_s3_uri": "s3://b/c", "runtime": "toolkit"},
        "entry_point": {"source_dir": "s3://my-data/source.tar.gz"},
        "source_dir": {"entry_point": "train.py"},
        "container_log_level": {"entry_point": "train.py", "source_dir": "src"},
        "model_dir": {"entry_point": "train.py", "source_dir": "src"},
        "mlflow_config.mlflow_experiment_name": {"mlflow_config": {"mlflow_resource_arn": MLFLOW}},
        "mlflow_config.mlflow_run_name": {"mlflow_config": {"mlflow_resource_arn": MLFLOW}},
        "model_channel_name": {"model_uri": "s3://b/m"},
        "output_path": {"code_location": "s3://my-data/code"},
        "output_kms_key": {"code_location": "s3://my-data/code"},
        "subnets[]": {"security_group_ids": ["sg-1"]},
        "security_group_ids[]": {"subnets": ["subnet-1"]},
        "max_wait": {"use_spot_instances": True},
        "use_spot_instances": {"max_wait": 2 * 86400},
        "metric_definitions[].Name": {"metric_definitions": [{"Regex": "(x)"}]},
        "metric_definitions[].Regex": {"metric_definitions": [{"Name": "x"}]},
        "tags[].Value": {"tags": [{"Key": "k"}]},
        "training_repository_access_mode": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        fields = {**IMAGE, **needs.get(field, {})}
        if field.startswith("instance_groups[]"):
            del fields["instance_type"]
            group = {"instance_group_name": "g", "instance_type": "ml.m5.xlarge", "instance_count": 1}
            fields["instance_groups"] = [{**group, field.rpartition(".")[2]: variable}]
        elif field.startswith("instance_preferences[]"):
            del fields["instance_type"]
            fields["instance_preferences"] = [{"instance_type": "ml.m5.xlarge", "instance_count": variable}]
        elif field.startswith("distribution"):
            fields |= {"entry_point": "train.py", "source_dir": "src"}
            fields["distribution"] = {field.split(".")[1]: {"processes_per_host": variable}}
        elif field.startswith(("mlflow_config", "model_package_config")):
            first, _, rest = field.partition(".")
            fields[first] = {**fields.get(first, {}), rest: variable}
        elif field.startswith("inputs.*"):
            fields["inputs"] = {"train": _channel(field.removeprefix("inputs.*").lstrip("."), variable)}
        else:
            _set(fields, field, variable)
        found = evaluated(_Training("Train", Estimator(**fields), None).arguments)
    assert '{"Get": "Parameters.X"}' in json.dumps(found)
    assert "pipeline-variable" not in json.dumps(found)


def _channel(name: str, variable: Any) -> Any:
    if not name:
        return variable
    mounted = {"file_system_id": "fs-12345678", "file_system_type": "EFS", "directory_path": "/data"}
    if name.startswith(("file_system", "directory")):
        return {**mounted, name: variable}
    if name.startswith("shuffle"):
        return {"s3_data": "s3://b/d", "shuffle_config": {"seed": variable}}
    if name == "attribute_names[]":
        return {"s3_data": "s3://b/d", "attribute_names": [variable]}
    return {"s3_data": "s3://b/d", name: variable}


def _set(fields: dict[str, Any], field: str, variable: Any) -> None:
    first, _, rest = re.sub(r"\[\]", ".0", field).partition(".")
    if not rest:
        fields[first] = variable
    elif rest == "*":
        fields[first] = {"name": variable}
    elif rest == "0":
        fields[first] = [variable]
    else:
        fields[first] = [{**fields[first][0], rest.rpartition(".")[2]: variable}]


def test_a_step_has_the_source_of_its_repository(folder: Path) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "src"], ["commit", "-qm", "one"]):
        subprocess.run(["git", *who, *command], cwd=folder, check=True, timeout=240)
    (folder / "src" / "train.py").unlink()  # only the repository has it
    estimator = Estimator(**IMAGE, entry_point="train.py", source_dir="src", git_config={"repo": "."})
    step = _Training("train", estimator, None)
    assert step.arguments["HyperParameters"]["sagemaker_program"] == '"train.py"'


def test_the_source_is_uploaded_without_a_key_that_is_a_pipeline_variable(folder: Path, aws: None) -> None:
    fields = {**IMAGE, "entry_point": "train.py", "source_dir": "src", "instance_count": 2}
    training = _Training("Train", Estimator(**fields, output_kms_key=ParameterString("K")), None)
    assert evaluated(training.arguments)["OutputDataConfig"]["KmsKeyId"] == {"Get": "Parameters.K"}
    training.upload()
    found = boto3.client("s3").list_objects_v2(Bucket="sagemaker-us-east-1-123456789012")["Contents"]
    assert any(row["Key"].endswith("sourcedir.tar.gz") for row in found)
