"""The attributes, the session, the functions and the modules of the SageMaker SDK that notebooks use.

``tests/data/sdk_surface/v2.json`` has the SDK's own names, values and signatures.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import operator
import pickle
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import (
    Estimator,
    HuggingFace,
    MXNet,
    PyTorch,
    Session,
    SKLearn,
    TensorFlow,
    TrainingInput,
    TrainingJobAnalytics,
    XGBoost,
    get_execution_role,
    image_uris,
    sagemaker,
)
from cloudtrain.errors import CloudtrainError, InvalidJob, NotSupported, TrainingFailed
from cloudtrain.sagemaker import s3, utils
from cloudtrain.sagemaker._elsewhere import Placeholder, sdk_names

SDK = json.loads((Path(__file__).parents[2] / "data" / "sdk_surface" / "v2.json").read_text())
ROLE = "arn:aws:iam::123456789012:role/R"
ARGUMENTS: dict[str, Any] = {"role": ROLE, "instance_count": 1, "instance_type": "ml.m5.xlarge"}
ESTIMATORS = {
    "Estimator": Estimator("img", **ARGUMENTS, entry_point=None),
    "PyTorch": PyTorch("train.py", framework_version="2.5.1", py_version="py311", **ARGUMENTS),
    "TensorFlow": TensorFlow("py310", "2.16", entry_point="train.py", **ARGUMENTS),
    "HuggingFace": HuggingFace("py311", "train.py", "4.49.0", pytorch_version="2.5.1", **ARGUMENTS),
    "MXNet": MXNet("train.py", "1.9.0", "py38", **ARGUMENTS),
    "SKLearn": SKLearn("train.py", "1.2-1", **ARGUMENTS),
    "XGBoost": XGBoost("train.py", "1.7-1", **ARGUMENTS),
}


@pytest.fixture(autouse=True)
def no_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


def estimator(**arguments: Any) -> Estimator:
    return Estimator("train.py", **arguments)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_each_public_name_of_the_sdk_works_or_names_an_alternative(name: str) -> None:
    one = ESTIMATORS[name]
    for attribute in SDK["common"] + SDK["own"][name]:
        assert attribute in dir(one)
        try:
            value = getattr(one, attribute)
        except CloudtrainError as error:
            assert error.hint, attribute
            continue
        if callable(value) and attribute.startswith(
            ("deploy", "register", "create", "transf", "compile", "del")
        ):
            with pytest.raises(NotSupported) as caught:
                value()
            assert caught.value.hint


def test_values_are_those_of_the_sdk() -> None:
    one = Estimator("img", ROLE, 1, "ml.m5.xlarge")
    assert {name: getattr(one, name) for name in SDK["values"]} == SDK["values"]


def test_signatures_are_those_of_the_sdk() -> None:
    ours = {
        "Session": Session,
        "TrainingJobAnalytics": TrainingJobAnalytics,
        "attach": Estimator.attach,
        "fit": Estimator.fit,
        "get_execution_role": get_execution_role,
        "image_uris.retrieve": image_uris.retrieve,
    }
    places = {"Session": Session, "TrainingJobAnalytics": TrainingJobAnalytics, "s3": s3, "utils": utils}
    for path, names in SDK["signatures"].items():
        place, *rest = path.split(".")
        found: Any = ours.get(path) or places[place]
        for part in rest if path not in ours else ():
            found = getattr(found, part)
        taken = [name for name in inspect.signature(found).parameters if name != "self"]
        assert taken[: len(names)] == names, path


def test_an_argument_is_an_attribute() -> None:
    one = estimator(role=ROLE, tags={"team": "a"}, subnets=["s"], security_group_ids=["g"], max_run=60)
    assert (one.role, one.max_run, one.volume_size, one.source_dir) == (ROLE, 60, 30, None)
    assert one.tags == [{"Key": "team", "Value": "a"}]
    assert one.get_vpc_config() == {"Subnets": ["s"], "SecurityGroupIds": ["g"]}
    one.instance_count = 3
    one.max_run = 120
    one.role = None
    assert (one.fields["instance_count"], one.fields["max_run"]) == (3, 120)
    assert "role" not in one.fields


def test_defaults_of_the_config_file_are_attributes(tmp_path: Path) -> None:
    (tmp_path / "cloudtrain").mkdir()
    (tmp_path / "cloudtrain" / "config.yaml").write_text(f"role: {ROLE}\n")
    assert estimator().role == ROLE


def test_hyperparameters_are_a_dict_and_a_method() -> None:
    one = estimator(hyperparameters={"lr": 0.1})
    copied = one.hyperparameters()
    copied["lr"] = 1
    one.hyperparameters["epochs"] = 3
    one.set_hyperparameters(batch=8)
    assert one.hyperparameters == one.hyperparameters() == {"lr": 0.1, "epochs": 3, "batch": 8}
    empty = estimator()
    empty.hyperparameters["a"] = 1
    assert empty.fields["hyperparameters"] == {"a": 1}
    empty.hyperparameters = {"b": 2}
    assert empty.hyperparameters() == {"b": 2}


def test_an_estimator_can_be_copied() -> None:
    one = estimator(role=ROLE, hyperparameters={"a": 1})
    for twin in (copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one))):
        assert (twin.role, twin.hyperparameters) == (ROLE, {"a": 1})
    assert not hasattr(one, "instance_cuont")


def test_what_is_left_out_names_the_line_with_the_values_of_this_estimator() -> None:
    with pytest.raises(NotSupported) as caught:
        Estimator("123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1", ROLE).deploy(2, "ml.g5.xlarge")
    assert "image_uri='123456789012.dkr.ecr.us-east-1.amazonaws.com/mine:1'" in caught.value.hint
    assert f"role_arn='{ROLE}'" in caught.value.hint
    assert 'initial_instance_count=2, instance_type="ml.g5.xlarge"' in caught.value.hint
    with pytest.raises(NotSupported, match=r'image_uris\.retrieve\("pytorch"'):
        ESTIMATORS["PyTorch"].register(model_package_group_name="mine")
    with pytest.raises(NotSupported, match=r'version=.4\.49\.0.*base_framework_version="pytorch2\.5\.1"'):
        ESTIMATORS["HuggingFace"].create_model()


@pytest.mark.parametrize("name", ["logs", "model_data", "training_job_analytics"])
def test_facts_about_a_job_need_one(name: str) -> None:
    with pytest.raises(CloudtrainError, match=r"(?s)has not started a job yet.*fit"):
        value = getattr(estimator(), name)
        value()


MODULES = {
    "analytics": "TrainingJobAnalytics HyperparameterTuningJobAnalytics",
    "debugger": "DebuggerHookConfig CollectionConfig TensorBoardOutputConfig ProfilerConfig",
    "estimator": "Estimator",
    "huggingface": "HuggingFace",
    "huggingface.estimator": "HuggingFace",
    "image_uris": "retrieve",
    "inputs": "TrainingInput FileSystemInput ShuffleConfig",
    "instance_group": "InstanceGroup",
    "local": "LocalSession",
    "mxnet": "MXNet",
    "parameter": "ContinuousParameter IntegerParameter CategoricalParameter",
    "pytorch": "PyTorch",
    "pytorch.estimator": "PyTorch",
    "s3": "S3Uploader S3Downloader s3_path_join parse_s3_url",
    "session": "Session get_execution_role TrainingInput",
    "tensorflow": "TensorFlow",
    "tuner": "HyperparameterTuner ContinuousParameter IntegerParameter CategoricalParameter",
    "utils": "name_from_base unique_name_from_base",
}


@pytest.mark.parametrize("module", MODULES)
def test_modules_have_their_names_of_the_sdk(module: str) -> None:
    found = importlib.import_module(f"cloudtrain.sagemaker.{module}")
    assert operator.attrgetter(module)(sagemaker) is found
    for name in MODULES[module].split():
        assert callable(getattr(found, name))


def test_the_package_has_the_names_of_the_sdk() -> None:
    for name in sagemaker.__all__:
        assert getattr(sagemaker, name)
    assert f" {sagemaker.__version__}," in SDK["source"]


def test_image_uris() -> None:
    def uri(*arguments: Any, **named: Any) -> str:
        return image_uris.retrieve(*arguments, **named).split("/")[1]

    gpu = {"instance_type": "ml.g5.xlarge", "image_scope": "training"}
    assert uri("pytorch", "us-west-2", "2.5.1", "py311", **gpu) == "pytorch-training:2.5.1-gpu-py311"
    hugging = uri("huggingface", "us-east-1", "4.49.0", "py311", base_framework_version="pytorch2.5.1", **gpu)
    assert hugging.startswith("huggingface-pytorch-training:2.5.1-transformers4.49.0-gpu-py311")
    with pytest.raises(InvalidJob, match="instance_type: pytorch has images"):
        uri("pytorch", "us-east-1", "2.5.1", "py311")
    with pytest.raises(InvalidJob, match="Did you mean 'pytorch'"):
        uri("pytroch", "us-east-1")
    with pytest.raises(NotSupported, match=r"(?s)image_scope='inference'.*sagemaker.core import image_uris"):
        uri("pytorch", "us-east-1", "2.5.1", "py311", "ml.g5.xlarge", image_scope="inference")


def test_names_from_a_base() -> None:
    assert len(utils.name_from_base("x" * 80)) == len(utils.unique_name_from_base("x" * 80)) == 63
    assert utils.base_name_from_image("1.dkr.ecr.us-east-1.amazonaws.com/mine:1") == "mine"


def test_s3_paths() -> None:
    assert s3.parse_s3_url("s3://bucket/a/b/") == ("bucket", "a/b/")
    assert s3.s3_path_join("s3://", "bucket/", "/a//b", None, "") == "s3://bucket/a/b"
    assert s3.s3_path_join("a", "b/", with_end_slash=True) == "a/b/"
    with pytest.raises(CloudtrainError, match="not an S3 URI"):
        s3.parse_s3_url("bucket/a")


@pytest.mark.parametrize(
    ("module", "name", "line"),
    [
        ("model", "Model", "from sagemaker.serve import ModelBuilder"),
        ("predictor", "Predictor", "from sagemaker.core.resources import Endpoint"),
        ("processing", "FeatureStoreOutput", "from sagemaker.core.processing import FeatureStoreOutput"),
        ("transformer", "Transformer", "from sagemaker.core.transformer import Transformer"),
        ("pytorch", "PyTorchModel", "from sagemaker.serve import ModelBuilder"),
    ],
)
def test_a_class_used_after_training_can_be_imported_and_its_error_names_the_alternative(
    module: str, name: str, line: str
) -> None:
    found = getattr(importlib.import_module(f"cloudtrain.sagemaker.{module}"), name)
    for use in (lambda: found("x", role=ROLE), lambda: found.sagemaker("x")):
        with pytest.raises(
            NotSupported, match=f"sagemaker.{module}.{name}: cloudtrain only trains"
        ) as caught:
            use()
        assert line in caught.value.hint


def test_a_session_names_what_it_lacks() -> None:
    session = Session()
    for name in SDK["session"]:
        try:
            getattr(session, name)
        except CloudtrainError as error:
            assert error.hint, name
    with pytest.raises(NotSupported, match=r"(?s)no create_endpoint.*session\.sagemaker_client"):
        session.create_endpoint("x")
    assert not hasattr(session, "create_endpoint")
    assert session._region_name == session.boto_region_name == "us-east-1"
    assert copy.copy(session).default_bucket_prefix is None


def test_serializers_are_refused_where_they_are_used() -> None:
    from cloudtrain.sagemaker.deserializers import JSONDeserializer
    from cloudtrain.sagemaker.serializers import CSVSerializer

    with pytest.raises(NotSupported, match="deploy: cloudtrain only trains"):
        ESTIMATORS["PyTorch"].deploy(
            1, "ml.m5.large", serializer=CSVSerializer(), deserializer=JSONDeserializer()
        )
    with pytest.raises(NotSupported, match=r"from sagemaker\.core\.serializers import CSVSerializer"):
        CSVSerializer().serialize([1])
    assert copy.copy(CSVSerializer()) is not None


@pytest.mark.parametrize("module", ["pytorch", "tensorflow", "debugger", "processing"])
def test_a_module_has_no_private_names(module: str) -> None:
    assert not hasattr(importlib.import_module(f"cloudtrain.sagemaker.{module}"), "_private")


def test_a_misspelt_class_is_not_found() -> None:
    with pytest.raises(ImportError):
        exec("from cloudtrain.sagemaker.pytorch import PyTroch")
    with pytest.raises(AttributeError):
        sagemaker.Sesion  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("cloudtrain.sagemaker.pytroch")


def test_every_module_and_name_of_the_sdk_can_be_imported_or_names_an_alternative() -> None:
    assert len(sdk_names()) > 400
    for module, names in sdk_names().items():
        found = importlib.import_module(f"cloudtrain.sagemaker.{module}".rstrip("."))
        for name in names:
            one = getattr(found, name)
            if isinstance(one, Placeholder):
                assert str(one.error()).startswith("sagemaker.")
                assert one.error().hint


@pytest.mark.parametrize(
    ("module", "name", "same"),
    [
        ("amazon.amazon_estimator", "get_image_uri", image_uris.get_image_uri),
        ("amazon.amazon_estimator", "image_uris", image_uris),
        ("exceptions", "UnexpectedStatusException", TrainingFailed),
        ("s3_utils", "s3_path_join", s3.s3_path_join),
        ("session", "s3_input", TrainingInput),
    ],
)
def test_a_name_that_is_here_is_found_by_every_name_of_the_sdk(module: str, name: str, same: Any) -> None:
    assert getattr(importlib.import_module(f"cloudtrain.sagemaker.{module}"), name) is same


def test_an_exception_of_the_sdk_can_be_caught() -> None:
    from cloudtrain.sagemaker.exceptions import CapacityError

    with pytest.raises(KeyError):
        try:
            raise KeyError
        except CapacityError:
            raise AssertionError from None
