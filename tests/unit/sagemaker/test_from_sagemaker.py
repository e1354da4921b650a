"""`Estimator.from_sagemaker`, on objects whose attributes were recorded from the real ones.

``tests/data/sdk_objects`` has them: of a ``PyTorch`` of sagemaker 2.257.7, and of a ``ModelTrainer`` of 3.27.0.
``tests/parity/compare.py --from-sagemaker`` runs real ones.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, InvalidJob

RECORDED = Path(__file__).parents[2] / "data" / "sdk_objects"


def recorded(name: str, **changed: Any) -> Any:
    """The object in ``<name>.json``, with classes of the same names as the original's."""
    obj = json.loads((RECORDED / f"{name}.json").read_text(), object_hook=_revive)
    vars(obj).update(changed)
    return obj


def _revive(attributes: dict[str, Any]) -> Any:
    names = attributes.pop("__class__", None)
    if names is None:
        return attributes
    kind: type = object
    for name in reversed(names):
        kind = type(name, (kind,), {"__module__": "sagemaker.recorded"})
    obj = kind()
    vars(obj).update(attributes)
    return obj


COMMON = {
    "entry_point": "train.py",
    "source_dir": "source",
    "role": "arn:aws:iam::123456789012:role/R",
    "hyperparameters": {"epochs": 5, "d": {"a": 1}},
    "environment": {"HF_TOKEN": "s3cret"},
    "tags": [{"Key": "a", "Value": "b"}],
    "instance_count": 2,
    "use_spot_instances": True,
    "max_run": 60,
    "max_wait": 120,
    "output_path": "s3://bucket/out",
    "checkpoint_s3_uri": "s3://bucket/c",
    "subnets": ["subnet-1"],
    "security_group_ids": ["sg-1"],
    "enable_network_isolation": True,
    "metric_definitions": [{"Name": "loss", "Regex": "loss=(.*)"}],
}
V2 = {
    "framework": "pytorch",
    "framework_version": "2.5.1",
    "py_version": "py311",
    "instance_type": "ml.p4d.24xlarge",
    "distribution": {"torch_distributed": {"enabled": True}},
    "debugger_hook_config": {
        "s3_output_path": "s3://bucket/d",
        "collection_configs": [{"name": "weights", "parameters": {"save_interval": "5"}}],
    },
    "tensorboard_output_config": {"s3_output_path": "s3://bucket/tb"},
    "enable_remote_debug": True,
}
V3 = {
    "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/my:1",
    "instance_type": "ml.m5.large",
    "volume_size": 50,
    "distribution": {"torch_distributed": {"processes_per_host": 4}},
    "output_kms_key": "k",
    "disable_output_compression": True,
    "checkpoint_local_path": "/opt/ml/checkpoints",
    "max_retry_attempts": 2,
    "base_job_name": "mine",
    "inputs": {"train": {"s3_data": "s3://bucket/train", "content_type": "text/csv"}},
}


@pytest.mark.parametrize(("name", "own"), [("pytorch", V2), ("model_trainer", V3)])
def test_arguments_are_those_of_the_object(name: str, own: dict[str, Any]) -> None:
    arguments = Estimator.from_sagemaker(recorded(name)).fields
    wanted = {**COMMON, **own}
    assert {field: arguments.get(field) for field in wanted} == wanted


@pytest.mark.parametrize("name", ["pytorch", "model_trainer"])
def test_a_job_from_sagemaker_runs_on_another_platform(name: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('training')")
    estimator = Estimator.from_sagemaker(
        recorded(name),
        platform="local",
        source_dir=tmp_path,
        inputs={},
        checkpoint_s3_uri=None,
        checkpoint_local_path=None,
        output_path=tmp_path.as_uri(),
        distribution={"processes": {}},
    )
    submission = estimator.prepare()
    assert submission.platform.name == "local"
    assert submission.job.hyperparameters == COMMON["hyperparameters"]


IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.5.1-cpu-py311"


def local_mode(name: str, instance_type: str, **changed: Any) -> Any:
    """A recorded object, changed to the local mode of its SDK."""
    if name == "pytorch":
        return recorded(name, instance_type=instance_type, **changed)
    trainer = recorded(name, **changed)
    trainer.training_mode.value = "LOCAL_CONTAINER"
    trainer.compute.instance_type = instance_type
    trainer.training_image = IMAGE
    return trainer


@pytest.mark.parametrize(("instance_type", "gpus"), [("local", None), ("local_gpu", "all")])
@pytest.mark.parametrize("name", ["pytorch", "model_trainer"])
def test_local_mode_keeps_its_image_and_gpus(
    name: str, instance_type: str, gpus: str | None, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('training')")
    changed = {"image_uri": IMAGE} if name == "pytorch" else {}
    submission = Estimator.from_sagemaker(
        local_mode(name, instance_type, **changed),
        source_dir=tmp_path,
        inputs={},
        checkpoint_s3_uri=None,
        checkpoint_local_path=None,
        output_path=tmp_path.as_uri(),
    ).prepare()
    assert submission.platform.name == "container"
    body = submission.request.body
    assert (body["image"], body["instance_type"]) == (IMAGE, instance_type)
    assert body["resources"]["gpus"] == gpus


def test_local_mode_takes_the_image_that_the_sdk_finds_for_the_framework() -> None:
    obj = local_mode("pytorch", "local", training_image_uri=lambda: IMAGE)
    assert Estimator.from_sagemaker(obj).fields["image_uri"] == IMAGE


@pytest.mark.parametrize(("entry_point", "is_kept"), [("train.py", True), ("/tmp/clone/train.py", False)])
def test_a_git_config_is_kept_until_the_sdk_has_cloned_it(entry_point: str, is_kept: bool) -> None:
    config = {"repo": "https://github.com/a/b.git", "branch": "main"}
    found = Estimator.from_sagemaker(
        local_mode("pytorch", "local", image_uri=IMAGE, entry_point=entry_point, git_config=config)
    )
    assert found.git_config == (config if is_kept else None)


def test_local_mode_without_an_image_is_refused() -> None:
    def find_image() -> str:
        raise ValueError("Unsupported pytorch version: 0.0")

    with pytest.raises(InvalidJob, match="Unsupported pytorch version"):
        Estimator.from_sagemaker(local_mode("pytorch", "local", training_image_uri=find_image))


@pytest.mark.parametrize("arguments", [{"image_uri": IMAGE}, {"platform": "local"}])
def test_the_sdk_is_not_called_for_an_image_that_is_not_needed(arguments: dict[str, str]) -> None:
    def find_image() -> str:
        raise AssertionError("asked")

    obj = local_mode("pytorch", "local", training_image_uri=find_image)
    found = Estimator.from_sagemaker(obj, **arguments).fields
    assert found.get("image_uri") == arguments.get("image_uri")
    assert found["platform"] == arguments.get("platform", "container")


def test_any_error_of_the_sdk_is_a_missing_image() -> None:
    def find_image() -> str:
        raise KeyError("no credentials")

    with pytest.raises(InvalidJob, match="the SDK finds no image: 'no credentials'") as caught:
        Estimator.from_sagemaker(local_mode("pytorch", "local", training_image_uri=find_image))
    assert caught.value.hint == "Pass image_uri."


@pytest.mark.parametrize("name", ["pytorch", "model_trainer"])
def test_another_instance_type_ends_local_mode(name: str) -> None:
    obj = local_mode(name, "local_gpu", training_image_uri=lambda: IMAGE)
    arguments = Estimator.from_sagemaker(obj, instance_type="ml.g5.xlarge").fields
    assert arguments["instance_type"] == "ml.g5.xlarge"
    assert "platform" not in arguments


def test_attributes_that_a_job_set_are_ignored() -> None:
    arguments = Estimator.from_sagemaker(
        recorded(
            "pytorch",
            _hyperparameters={"epochs": 5, "sagemaker_program": "train.py"},
            _is_output_path_set_from_default_bucket_and_prefix=True,
        )
    ).fields
    assert arguments["hyperparameters"] == {"epochs": 5}
    assert "output_path" not in arguments


def test_a_plain_estimator_with_source_keeps_its_hyperparameters_as_json() -> None:
    obj = recorded("pytorch", _hyperparameters={"epochs": "5", "name": '"x"'}, image_uri="train:1")
    type(obj).__name__ = "Estimator"
    assert Estimator.from_sagemaker(obj).fields["hyperparameters"] == {"epochs": 5, "name": "x"}


class Shape:
    """A shape of version 3, with the attributes that are given."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


def test_preferences_and_model_package_of_version_3() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/my-plan"
    group = "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/g"
    unset = type("Unassigned", (), {})()
    trainer = recorded("model_trainer", model_package_config=Shape(model_package_group_arn=group))
    trainer.compute = Shape(
        instance_type=None,
        instance_preferences=[
            Shape(instance_type="ml.p5.48xlarge", instance_count=1, training_plan_arns=[plan]),
            Shape(instance_type="ml.g5.12xlarge", instance_count=8, training_plan_arns=unset),
        ],
    )
    arguments = Estimator.from_sagemaker(trainer).fields
    assert arguments["instance_preferences"] == [
        {"instance_type": "ml.p5.48xlarge", "instance_count": 1, "training_plan_arns": [plan]},
        {"instance_type": "ml.g5.12xlarge", "instance_count": 8},
    ]
    assert arguments["model_package_config"] == {"model_package_group_arn": group}
    one_type = Estimator.from_sagemaker(trainer, instance_type="ml.m5.xlarge").fields
    assert "instance_preferences" not in one_type


def test_rules_and_the_compiler_are_taken_over() -> None:
    collection = _revive({"__class__": ["CollectionConfig"], "name": "losses", "parameters": None})
    own = {"container_local_output_path": None, "s3_output_path": None, "instance_type": None}
    rule = {
        **own,
        "name": "Overfit",
        "volume_size_in_gb": None,
        "rule_parameters": {"rule_to_invoke": "Overfit"},
    }
    stop = _revive({"__class__": ["StopTraining"], "action_parameters": {"name": "stoptraining"}})
    rules = [
        _revive(
            {
                "__class__": ["Rule", "RuleBase"],
                **rule,
                "image_uri": "DEFAULT_RULE_EVALUATOR_IMAGE",
                "collection_configs": [collection],
                "actions": _revive({"__class__": ["ActionList"], "actions": (stop,)}),
            }
        ),
        _revive(
            {
                "__class__": ["ProfilerRule", "RuleBase"],
                **rule,
                "image_uri": "i",
                "instance_type": "ml.t3.medium",
            }
        ),
    ]
    compiler = _revive({"__class__": ["TrainingCompilerConfig"], "enabled": True, "debug": False})
    fields = Estimator.from_sagemaker(recorded("pytorch", rules=rules, compiler_config=compiler)).fields
    assert fields["rules"] == [
        {
            "name": "Overfit",
            "rule_parameters": {"rule_to_invoke": "Overfit"},
            "collections_to_save": [{"name": "losses"}],
            "actions": [{"name": "stoptraining"}],
            "profiles": False,
        },
        {
            "name": "Overfit",
            "rule_parameters": {"rule_to_invoke": "Overfit"},
            "image_uri": "i",
            "instance_type": "ml.t3.medium",
            "profiles": True,
        },
    ]
    assert fields["compiler_config"] == {"enabled": True, "debug": False}


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: object(), "object is neither an estimator of the SageMaker SDK nor a ModelTrainer"),
        (lambda: recorded("pytorch", is_nova_job=True), "a training_recipe is not supported"),
        (
            lambda: recorded("pytorch", max_run=object()),
            "max_run: the SageMaker SDK's object cannot be converted",
        ),
        (lambda: recorded("model_trainer", algorithm_name="x"), "algorithm_name is not supported"),
        (lambda: recorded("model_trainer", distributed=object()), "distributed=object(...) is not supported"),
    ],
)
def test_unsupported_objects_are_refused(make: Any, says: str) -> None:
    with pytest.raises(InvalidJob) as caught:
        Estimator.from_sagemaker(make())
    assert says in str(caught.value)
