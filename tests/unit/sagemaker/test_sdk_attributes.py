"""`Estimator.from_sagemaker` loses nothing: each thing that a user can set is carried over, or refused by name.

``tests/parity/record_attributes.py`` recorded what can be set: on estimators of version 2, and on a ``ModelTrainer`` of
version 3 and all objects in it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_from_sagemaker import recorded

from cloudtrain import Estimator, InvalidJob
from cloudtrain._sdk.objects import _v2
from cloudtrain._sdk.objects._v3 import CARRIED, LEFT_OUT, REFUSED
from cloudtrain.spec import FIELDS, FileSystemInput, TrainingInput

DATA = Path(__file__).parents[2] / "data" / "sdk_objects"
V2 = json.loads((DATA / "v2_arguments.json").read_text())
V3 = json.loads((DATA / "v3_attributes.json").read_text())["ModelTrainer"]


class Shape:
    """An object of the SDK, with the attributes that are given."""

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)


LISTS = (
    "input_data_config",
    "tags",
    "_metric_definitions",
    "compute.instance_groups",
    "compute.instance_preferences",
    "compute.instance_placement_config.placement_specifications",
)
"""The paths of lists of objects."""

VALUES: dict[str, Any] = {
    "output_data_config.compression_type": "NONE",
    "input_data_config.data_source": "s3://bucket/other",
    "distributed.process_count_per_node": 3,
    "distributed.mpi_additional_options": ["-x", "A=1"],
    "source_code.args": ["--epochs", 1],
    "hyperparameters": {"other": 1},
    "environment": {"OTHER": "1"},
    "source_code.requirements": "other.txt",
    "input_data_config.data_source.model_access_config.accept_eula": False,
    "_is_nova_recipe": True,
    "_is_llmft_recipe": True,
    "networking.subnets": ["other"],
    "networking.security_group_ids": ["other"],
    "input_data_config.data_source.attribute_names": ["other"],
    "input_data_config.data_source.instance_group_names": ["other"],
    "compute.instance_preferences.training_plan_arns": ["other"],
}
"""The values of attributes that cannot be text."""


def trainer(path: str, value: Any) -> Any:
    """The recorded ``ModelTrainer`` with ``value`` at ``path``."""
    obj = recorded("model_trainer", source_code=Shape(entry_script="train.py", source_dir="source"))
    obj.distributed = type("MPI", (Shape,), {})()
    obj.input_data_config = [Shape(channel_name="train", data_source=Shape(s3_uri="s3://bucket/train"))]
    if "file_system" in path or "directory_path" in path:
        mounted = Shape(file_system_id="fs", file_system_type="EFS", directory_path="/")
        is_wrapped = "file_system_data_source" in path
        obj.input_data_config[0].data_source = (
            Shape(file_system_data_source=mounted) if is_wrapped else mounted
        )
    *parents, name = path.split(".")
    owner, walked = obj, ""
    for parent in parents:
        walked = f"{walked}.{parent}".lstrip(".")
        inner = getattr(owner, parent, None) or ([Shape()] if walked in LISTS else Shape())
        setattr(owner, parent, inner)
        owner = inner[0] if isinstance(inner, list) else inner
    if path == "input_data_config.data_source.s3_data_source.s3_uri":
        del obj.input_data_config[0].data_source.s3_uri
    setattr(owner, name, value)
    return obj


def plain(path: str) -> str:
    return path.replace(".s3_data_source", "").replace(".file_system_data_source", "")


def within(path: str, names: Any) -> list[str]:
    return [name for name in names if plain(path) == name or plain(path).startswith(f"{name}.")]


def test_every_attribute_is_in_one_table() -> None:
    assert [
        path
        for path in V3
        if (plain(path) in CARRIED) + bool(within(path, REFUSED) + within(path, LEFT_OUT)) != 1
    ] == []


@pytest.mark.parametrize("path", [path for path in V3 if plain(path) in CARRIED])
def test_what_is_carried_over_changes_the_job(path: str) -> None:
    if path in ("sagemaker_session", "training_mode", "source_code.ignore_patterns"):
        return  # other tests
    if path == "source_code.requirements":
        with pytest.raises(InvalidJob, match=r"source_code.requirements: other.txt is not supported"):
            Estimator.from_sagemaker(trainer(path, VALUES[path]))
        return
    unset = "s3://bucket/train" if path == "input_data_config.data_source" else None
    without = Estimator.from_sagemaker(trainer(path, unset)).fields
    value = VALUES.get(path, VALUES.get(plain(path), "other"))
    with_it = Estimator.from_sagemaker(trainer(path, value)).fields
    changed = {name for name in with_it if with_it[name] != without.get(name)}
    assert changed, path
    assert changed <= set(FIELDS)


@pytest.mark.parametrize("path", [path for path in V3 if within(path, REFUSED)])
def test_what_is_refused_is_named(path: str) -> None:
    [name] = within(path, REFUSED)
    with pytest.raises(InvalidJob) as caught:
        Estimator.from_sagemaker(trainer(path, VALUES.get(path, "other")))
    assert caught.value.message == f"from_sagemaker: {name} is not supported"
    assert caught.value.hint == REFUSED[name]


@pytest.mark.parametrize("path", [path for path in V3 if within(path, LEFT_OUT)])
def test_what_is_left_out_changes_nothing(path: str) -> None:
    without = Estimator.from_sagemaker(trainer(path, None)).fields
    assert Estimator.from_sagemaker(trainer(path, "other")).fields == without


def test_eula_and_hub_access_are_carried_over() -> None:
    source = "input_data_config.data_source.s3_data_source"
    for value in (True, False):
        obj = trainer(f"{source}.model_access_config.accept_eula", value)
        obj.input_data_config[0].data_source.s3_data_source.s3_uri = "s3://bucket/model"
        obj.input_data_config[0].data_source.s3_data_source.hub_access_config = Shape(hub_content_arn="arn:h")
        channel = Estimator.from_sagemaker(obj).fields["inputs"]["train"]
        assert channel["model_access_config"] == {"AcceptEula": value}
        assert channel["hub_access_config"] == {"HubContentArn": "arn:h"}
        assert TrainingInput(**channel)


@pytest.mark.parametrize("path", ["new_feature", "compute.new_feature", "_new_config.enable", "tags.new"])
def test_attributes_of_a_newer_sdk_are_refused_by_name(path: str) -> None:
    with pytest.raises(
        InvalidJob, match=f"from_sagemaker: {path} is not supported: cloudtrain has no equivalent"
    ):
        Estimator.from_sagemaker(trainer(path, "on"))
    for unset in (None, False, "", [], {}, type("Unassigned", (), {})()):
        assert Estimator.from_sagemaker(trainer(path, unset))


def patterns(folder: Path, *names: str) -> Any:
    obj = trainer("source_code.ignore_patterns", [".git", "__pycache__", ".cache", *names])
    obj.source_code.source_dir = str(folder)
    return obj


def test_ignore_patterns_are_refused_unless_the_source_has_them_too(tmp_path: Path) -> None:
    """cloudtrain has its own file for them, which all submissions of a source share."""
    for name in ("train.py", "data/a.csv", "__pycache__/x.pyc", "sub/model.ckpt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert Estimator.from_sagemaker(patterns(tmp_path, "*.log"))
    with pytest.raises(
        InvalidJob, match=r"source_code.ignore_patterns: .* matches data, \*\.ckpt\n"
    ) as caught:
        Estimator.from_sagemaker(patterns(tmp_path, "data", "*.log", "*.ckpt"))
    assert caught.value.hint == f"Write the patterns into {tmp_path / '.cloudtrainignore'}, one in each line."
    (tmp_path / ".cloudtrainignore").write_text("data/\n*.ckpt\n")
    assert Estimator.from_sagemaker(patterns(tmp_path, "data", "*.log", "*.ckpt"))


OTHER_NAMES = {
    "enable_network_isolation": "_enable_network_isolation",
    "enable_remote_debug": "_enable_remote_debug",
    "enable_session_tag_chaining": "_enable_session_tag_chaining",
    "hyperparameters": "_hyperparameters",
    "transformers_version": "framework_version",
    "training_recipe": "training_recipe_file",
    "recipe_overrides": "training_recipe_file",
}
"""The attributes in which version 2 keeps an argument, where they have another name."""

V2_VALUES: dict[str, Any] = {
    "hyperparameters": {"other": "1"},
    "compiler_config": Shape(enabled=True, debug=False),
    "debugger_hook_config": False,
    "tensorboard_output_config": Shape(s3_output_path="s3://bucket/other"),
    "profiler_config": Shape(s3_output_path="s3://bucket/other"),
    "instance_groups": [Shape(instance_group_name="a", instance_type="ml.m5.large", instance_count=1)],
}


@pytest.mark.parametrize("kind", _v2.FRAMEWORKS)
def test_every_argument_of_version_2_is_carried_over_or_refused(kind: str) -> None:
    for name in sorted({name for base in ("Estimator", "Framework", kind) for name in V2[base]}):
        if name in ("framework_version", "sagemaker_session", "image_uri_region"):
            continue  # set in the recorded object; no argument of a job; the region of the image_uri that the SDK finds
        found = []
        for value in (None, V2_VALUES.get(name, "other")):
            obj = recorded("pytorch", instance_groups=None, _hyperparameters={"epochs": "5"})
            type(obj).__name__ = kind
            vars(obj)[OTHER_NAMES.get(name, name)] = value
            try:
                estimator = Estimator.from_sagemaker(obj)
                found.append((estimator.fields, estimator.git_config))
            except InvalidJob as error:
                assert value is not None, error
                assert name in str(error) or "training_recipe" in str(error)
                break
        else:
            assert found[0] != found[1], name


@pytest.mark.parametrize("kind", [TrainingInput, FileSystemInput])
def test_every_argument_of_a_channel_of_version_2_is_accepted_or_refused_by_name(kind: type) -> None:
    assert set(V2[kind.__name__]) == set(kind.__struct_fields__)  # type: ignore[attr-defined]


def test_channels_of_version_2_are_carried_over() -> None:
    source = {
        "S3Uri": "s3://b/x",
        "S3DataType": "AugmentedManifestFile",
        "S3DataDistributionType": "ShardedByS3Key",
        "InstanceGroupNames": ["g"],
        "AttributeNames": ["a"],
        "HubAccessConfig": {"HubContentArn": "arn:h"},
        "ModelAccessConfig": {"AcceptEula": True},
    }
    config = {
        "DataSource": {"S3DataSource": source},
        "CompressionType": "Gzip",
        "ContentType": "text/csv",
        "RecordWrapperType": "RecordIO",
        "InputMode": "Pipe",
        "TargetAttributeName": "t",
        "ShuffleConfig": {"Seed": 7},
    }
    channel = _v2.read_input(Shape(config=config))
    unset = [name for name in channel.__struct_fields__ if getattr(channel, name) is None]
    assert unset == []


@pytest.mark.parametrize("name", [1, True, None, 1.5, ("a", 1)])
def test_the_name_of_a_hyperparameter_is_text(name: Any) -> None:
    for make in (
        lambda: Estimator("train.py", hyperparameters={name: 1}).prepare(),
        lambda: Estimator.from_sagemaker(recorded("pytorch", _hyperparameters={name: 1})).prepare(),
    ):
        with pytest.raises(InvalidJob, match=r"hyperparameters: the name .* is not text") as caught:
            make()
        assert caught.value.hint == "Put it in quotes to make it text."
