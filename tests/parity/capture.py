"""Runs Python code that submits jobs, and records its requests to AWS.

    python capture.py {sagemaker|cloudtrain|from_sagemaker} < cases.json > requests.json

With ``from_sagemaker``, the SDK creates the estimator, and `Estimator.from_sagemaker` converts it.

This file runs in the interpreter of the SageMaker SDK and in that of cloudtrain, so it imports only the standard
library and botocore. ``AWS_ENDPOINT_URL`` is the URL of a server that simulates AWS.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RECORDED = ("CreateTrainingJob", "CreateHyperParameterTuningJob")

PRELUDE = {
    "sagemaker": """
import boto3
import sagemaker
from sagemaker import (
    FactorizationMachines, IPInsights, KMeans, KNN, LDA, LinearLearner, NTM, Object2Vec, PCA, RandomCutForest,
)
from sagemaker.amazon.amazon_estimator import FileSystemRecordSet, RecordSet
from sagemaker.rl import RLEstimator, RLFramework, RLToolkit
from sagemaker.debugger import (
    CollectionConfig, DebuggerHookConfig, Profiler, ProfilerConfig, TensorBoardOutputConfig,
)
from sagemaker.estimator import Estimator
from sagemaker.huggingface import HuggingFace
from sagemaker.inputs import FileSystemInput, ShuffleConfig, TrainingInput
from sagemaker.instance_group import InstanceGroup
from sagemaker.mxnet import MXNet
from sagemaker.pytorch import PyTorch
from sagemaker.sklearn import SKLearn
from sagemaker.tensorflow import TensorFlow
from sagemaker.tuner import (
    CategoricalParameter, ContinuousParameter, HyperbandStrategyConfig, HyperparameterTuner, InstanceConfig,
    IntegerParameter, StrategyConfig, TuningJobCompletionCriteriaConfig, WarmStartConfig, WarmStartTypes,
)
from sagemaker.xgboost import XGBoost
def session(region): return sagemaker.Session(boto3.Session(region_name=region))
""",
    "cloudtrain": """
import boto3
from cloudtrain.sagemaker import (
    FactorizationMachines, IPInsights, KMeans, KNN, LDA, LinearLearner, NTM, Object2Vec, PCA, RandomCutForest,
)
from cloudtrain.sagemaker.amazon.amazon_estimator import FileSystemRecordSet, RecordSet
from cloudtrain.sagemaker.rl import RLEstimator, RLFramework, RLToolkit
from cloudtrain import (
    CategoricalParameter, CollectionConfig, ContinuousParameter, DebuggerHookConfig, Estimator, FileSystemInput,
    HuggingFace, HyperbandStrategyConfig, HyperparameterTuner, InstanceConfig, InstanceGroup, IntegerParameter,
    MXNet, Profiler, ProfilerConfig, PyTorch, SKLearn, ShuffleConfig, StrategyConfig, TensorBoardOutputConfig,
    TensorFlow, TrainingInput, TuningJobCompletionCriteriaConfig, WarmStartConfig, WarmStartTypes, XGBoost,
)
def session(region): return boto3.Session(region_name=region)
""",
}

PRELUDE["from_sagemaker"] = (
    PRELUDE["sagemaker"]
    + """
from cloudtrain import Estimator as _Ours
"""
)

NAMES = """
SRC = "SRC"
ROLE = "arn:aws:iam::123456789012:role/SageMakerRole"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/my:latest"
BASE = dict(entry_point="train.py", source_dir=SRC, role=ROLE, framework_version="2.5.1", py_version="py311")
P4 = dict(instance_count=2, instance_type="ml.p4d.24xlarge")
CPU = dict(instance_count=1, instance_type="ml.m5.xlarge")
IN = {"train": "s3://my-data/train"}
def J(): return "golden-job"
def go(est, inputs=IN, **k): est.fit(inputs, wait=False, job_name=k.pop("job_name", "golden-job"), **k); return est
"""

THROUGH_OURS = """
_go = go
def go(est, inputs=IN, **k): return _go(_Ours.from_sagemaker(est), inputs, **k)
"""


def capture(code: str, library: str) -> dict[str, Any]:
    """Run ``code`` with the names of ``library``, in a folder with the sources that it uses.

    Returns:
        ``requests`` by operation, ``calls`` in their order, and the ``error``, if one was raised.
    """
    if library == "cloudtrain":  # the one changed import line
        code = re.sub(r"\b(__import__\('|from )sagemaker\b", r"\1cloudtrain.sagemaker", code)
    error = None
    with tempfile.TemporaryDirectory() as folder, _inside(Path(folder)), _recorded() as (requests, calls):
        try:
            names = NAMES + (THROUGH_OURS if library == "from_sagemaker" else "")
            exec(PRELUDE[library] + names + code, {})
        except Exception as raised:
            error = f"{type(raised).__name__}: {raised}"
    return {"requests": requests, "calls": calls, "error": error}


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    sources = {
        "SRC": {"train.py": "print('hello')\n", "requirements.txt": "\n"},
        "SRC_SH": {"run.sh": "echo hello\n"},
        "EXTRA_DEP": {"extra.py": "\n"},
        "DATA": {"a.txt": "a\n"},
    }
    for name, files in sources.items():
        (folder / name).mkdir()
        for file, text in files.items():
            (folder / name / file).write_text(text)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def _recorded() -> Iterator[tuple[dict[str, Any], list[str]]]:
    """The requests, before botocore validates them, and the calls of clients that are created in this context."""
    import boto3
    from botocore.handlers import BUILTIN_HANDLERS

    boto3.DEFAULT_SESSION = None  # the default session has the handlers of an earlier case

    requests: dict[str, Any] = {}
    calls: list[str] = []

    def on_params(params: dict[str, Any], model: Any, **_: Any) -> None:
        if model.name in RECORDED:
            requests[model.name] = json.loads(json.dumps(params))

    def on_call(model: Any, params: dict[str, Any], **_: Any) -> None:
        calls.append(f"{model.service_model.service_name}.{model.name}")
        endpoint = os.environ.get("AWS_ENDPOINT_URL")
        if endpoint:  # the SDK sends requests for STS to another address
            params["url"] = re.sub(r"^https?://[^/]+", endpoint, params["url"])

    handlers = [("provide-client-params.*.*", on_params), ("before-call.*.*", on_call)]
    BUILTIN_HANDLERS.extend(handlers)
    try:
        yield requests, calls
    finally:
        for handler in handlers:
            BUILTIN_HANDLERS.remove(handler)


if __name__ == "__main__":
    captured = {}
    for case, source in json.load(sys.stdin).items():
        print(case, file=sys.stderr)
        captured[case] = capture(source, sys.argv[1])
    json.dump(captured, sys.stdout)
