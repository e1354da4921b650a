"""Estimators accept the arguments of the SageMaker SDK, version 2: by position, by name, and by old names."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator, HuggingFace, InstanceGroup, MXNet, PyTorch, TensorFlow, TrainingInput
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import FIELDS, TrainingJob

ECR = "123456789012.dkr.ecr.us-east-1.amazonaws.com/my:latest"


def test_one_positional_argument_is_the_script() -> None:
    assert Estimator("train.py").fields == {"entry_point": "train.py"}


def test_one_positional_argument_of_ecr_is_the_image() -> None:
    assert Estimator(ECR, role="r").fields == {"image_uri": ECR, "role": "r"}


def test_one_positional_argument_with_a_script_is_the_image() -> None:
    arguments = Estimator("my:1", entry_point="train.py").fields
    assert arguments == {"image_uri": "my:1", "entry_point": "train.py"}


def test_several_positional_arguments_are_those_of_the_sdk() -> None:
    arguments = Estimator("my:1", "role", 2, "ml.m5.xlarge", None, 50, entry_point="train.py").fields
    assert arguments == {
        "image_uri": "my:1",
        "role": "role",
        "instance_count": 2,
        "instance_type": "ml.m5.xlarge",
        "volume_size": 50,
        "entry_point": "train.py",
    }


FRAMEWORKS: dict[str, tuple[Estimator, dict[str, Any]]] = {
    "pytorch": (
        PyTorch("train.py", "2.5.1", "py311", "src", {"a": 1}, ECR, {"mpi": {}}),
        {
            "entry_point": "train.py",
            "framework": "pytorch",
            "framework_version": "2.5.1",
            "py_version": "py311",
            "source_dir": "src",
            "hyperparameters": {"a": 1},
            "image_uri": ECR,
            "distribution": {"mpi": {}},
        },
    ),
    "tensorflow": (
        TensorFlow("py310", "2.16.2", False, entry_point="train.py"),
        {
            "entry_point": "train.py",
            "framework": "tensorflow",
            "framework_version": "2.16.2",
            "model_dir": False,
            "py_version": "py310",
        },
    ),
    "huggingface": (
        HuggingFace("py311", "train.py", "4.49.0", None, "2.5.1", "src"),
        {
            "entry_point": "train.py",
            "framework": "huggingface",
            "py_version": "py311",
            "pytorch_version": "2.5.1",
            "source_dir": "src",
            "transformers_version": "4.49.0",
        },
    ),
    "mxnet": (
        MXNet("train.py", "1.9.0", "py38", "src"),
        {
            "entry_point": "train.py",
            "framework": "mxnet",
            "framework_version": "1.9.0",
            "py_version": "py38",
            "source_dir": "src",
        },
    ),
}


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_have_the_order_of_the_sdk(name: str) -> None:
    estimator, arguments = FRAMEWORKS[name]
    assert estimator.fields == arguments
    assert TrainingJob.from_dict(arguments).framework == name


def test_names_of_version_1_are_accepted_with_a_warning() -> None:
    with pytest.warns(UserWarning, match="train_instance_count was renamed to instance_count in version 2"):
        estimator = Estimator("train.py", train_instance_count=2)
    assert estimator.fields["instance_count"] == 2


def test_both_names_together_are_refused() -> None:
    with pytest.raises(InvalidJob, match="train_max_run and max_run are the same argument"):
        Estimator("train.py", train_max_run=1, max_run=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"env": {"A": "b"}}, r"env: .*\n.*environment=\{...\}"),
        ({"script_mode": False}, r"script_mode: version 2 .* has only script mode\n"),
        ({"training_recipe": "x"}, r"training_recipe: .*\n  Pass the recipe's script"),
        ({"instance_cout": 1}, r"PyTorch has no argument 'instance_cout'\n  Did you mean 'instance_count'"),
        ({"nodes": 2}, r"PyTorch has no argument 'nodes'\n  Did you mean 'instance_count'"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        PyTorch("train.py", **arguments)


def test_names_of_version_1_without_effect_give_a_warning() -> None:
    with pytest.warns(UserWarning, match="^script_mode, training_steps: without effect since") as warned:
        assert PyTorch("train.py", script_mode=True, training_steps=9).fields.keys() == {
            "entry_point",
            "framework",
        }
    assert warned[0].filename == __file__


def test_an_empty_unsupported_argument_is_ignored() -> None:
    assert Estimator("train.py", training_recipe="", git_config={}).fields == {"entry_point": "train.py"}


def test_an_argument_by_position_and_by_name_is_refused() -> None:
    with pytest.raises(InvalidJob, match="Estimator got 'role' twice"):
        Estimator("my:1", "role", role="other")


def test_structs_are_validated_as_dicts_are() -> None:
    group = InstanceGroup("g", "ml.m5.xlarge", 0)
    with pytest.raises(
        InvalidJob, match=r"instance_groups\[0\].instance_count: expected a whole number of at least 1"
    ):
        Estimator("train.py", instance_groups=[group]).prepare()
    with pytest.raises(
        InvalidJob, match=r"inputs.training.distribution: expected FullyReplicated or ShardedByS3Key"
    ):
        Estimator("train.py").prepare(TrainingInput("s3://b/x", "Half"))


def test_groups_of_a_distribution_are_named_by_themselves() -> None:
    group = InstanceGroup("g", "ml.m5.xlarge", 1)
    arguments = PyTorch(
        "train.py", instance_groups=[group], distribution={"mpi": {}, "instance_groups": [group]}
    ).fields
    job = TrainingJob.from_dict(arguments)
    assert job.distribution is not None
    assert job.distribution.instance_groups == ["g"]


def test_hyperparameters_can_be_read_back() -> None:
    estimator = Estimator("train.py", hyperparameters={"a": 1})
    estimator.set_hyperparameters(b=2)
    assert estimator.hyperparameters() == {"a": 1, "b": 2}


def test_every_field_can_be_completed() -> None:
    parameters = inspect.signature(Estimator).parameters
    assert {*FIELDS} - {"source", "cost_terms"} <= {*parameters}


def test_arguments_are_those_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    estimator = Estimator("train.py", arguments=["fit"])
    estimator.arguments.append("--fast")
    assert estimator.prepare().job.arguments == ["fit", "--fast"]
    estimator.arguments = ["test"]
    assert estimator.prepare().job.arguments == ["test"]


def test_the_default_of_a_list_is_not_shared() -> None:
    one, other = Estimator("train.py"), Estimator("train.py")
    one.arguments.append("--fast")
    one.dependencies.append("lib")
    assert (one.arguments, one.dependencies) == (["--fast"], ["lib"])
    assert (other.arguments, other.dependencies) == ([], [])


def test_an_estimator_is_printed_as_its_call_without_secrets() -> None:
    estimator = PyTorch("train.py", instance_count=2, environment={"HF_TOKEN": "hf_abc", "LEVEL": "1"})
    assert repr(estimator) == (
        "PyTorch(entry_point='train.py', environment={'HF_TOKEN': '***', 'LEVEL': '1'}, instance_count=2, "
        "framework='pytorch')"
    )
