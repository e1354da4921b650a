"""Steps of pipelines: the SageMaker SDK's own, and cloudtrain's in the SDK's Pipeline.

Runs in an environment with the SDK, moto and cloudtrain, without a network:

    python pipelines.py v2 CASES.json            # or v3: prints both steps of each case as JSON
    python pipelines.py v2 CASES.json --record   # writes the SDK's steps into the file
    python pipelines.py v2 PROGRAM.py            # runs a program in an account in memory

``CASES.json`` is ``tests/data/sdk_pipelines/v2.json`` or ``v3.json``. It needs the folder ``src`` with ``train.py``.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")
os.environ.update(
    AWS_DEFAULT_REGION="us-east-1",
    AWS_ACCESS_KEY_ID="testing",
    AWS_SECRET_ACCESS_KEY="testing",
    AWS_EC2_METADATA_DISABLED="true",
)

TRUST = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}

NAMES = {
    "v2": """
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput
from sagemaker.pytorch import PyTorch
from sagemaker.tensorflow import TensorFlow
from sagemaker.workflow.execution_variables import ExecutionVariables
from sagemaker.workflow.functions import Join
from sagemaker.workflow.parameters import ParameterBoolean, ParameterFloat, ParameterInteger, ParameterString
from sagemaker.workflow.pipeline import Pipeline
from sagemaker.workflow.pipeline_context import PipelineSession
from sagemaker.workflow.retry import StepExceptionTypeEnum, StepRetryPolicy
from sagemaker.workflow.steps import CacheConfig, TrainingStep
""",
    "v3": """
from sagemaker.core.helper import iam_role_resolver
iam_role_resolver._simulate_denied_actions = lambda *_: ([], [])  # moto cannot simulate policies
from sagemaker.core.workflow import ExecutionVariables, Join, ParameterFloat, ParameterInteger, ParameterString
from sagemaker.core.workflow.pipeline_context import PipelineSession
from sagemaker.mlops.workflow.pipeline import Pipeline
from sagemaker.mlops.workflow.steps import CacheConfig, TrainingStep
from sagemaker.train.configs import Compute, InputData, OutputDataConfig, SourceCode, StoppingCondition
from sagemaker.train.model_trainer import ModelTrainer
""",
}


def start_aws() -> None:
    """An account in memory, with two buckets and two roles."""
    import boto3
    from moto import mock_aws

    mock_aws().start()
    for bucket in ("sagemaker-us-east-1-123456789012", "my-bucket"):
        boto3.client("s3").create_bucket(Bucket=bucket)
    document = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
    for role in ("SageMakerRole", "Pipelines"):
        boto3.client("iam").create_role(RoleName=role, AssumeRolePolicyDocument=document)


def steps_of(case: dict[str, Any], prelude: str, version: str) -> tuple[Any, Any]:
    """The step of the SDK, and cloudtrain's for the same arguments, as the SDK's Pipeline defines them."""
    space: dict[str, Any] = {}
    exec(NAMES[version], space)
    space["session"] = space["PipelineSession"]()
    exec(prelude, space)
    theirs = dict(space)
    exec(case["sdk" if version == "v3" else "code"], theirs)
    args = theirs["step_args"] if version == "v3" else theirs["estimator"].fit(theirs.get("inputs"))
    step = space["TrainingStep"]("Train", step_args=args, **theirs.get("options", {}))
    sdk = _defined(theirs, step)

    import cloudtrain
    from cloudtrain.pipelines import TrainingStep

    ours = dict(space)
    ours.update({name: getattr(cloudtrain, name) for name in ("Estimator", "PyTorch", "TensorFlow")})
    exec(case["cloudtrain" if version == "v3" else "ours" if "ours" in case else "code"], ours)
    step = TrainingStep("Train", ours["estimator"], ours.get("inputs"), **ours.get("options", {}))
    return sdk, _defined(ours, step)


def _defined(space: dict[str, Any], step: Any) -> Any:
    steps = [*space.get("before", []), step]
    pipeline = space["Pipeline"]("golden", steps=steps, sagemaker_session=space["session"])
    return next(step for step in json.loads(pipeline.definition())["Steps"] if step["Name"] == "Train")


def main(version: str, path: str, record: bool) -> None:
    start_aws()
    text = Path(path).read_text(encoding="utf-8")
    if path.endswith(".py"):
        exec(NAMES[version], {})
        exec(text, {})
        return
    recorded = json.loads(text)
    found = {}
    for case in recorded["cases"]:
        sdk, ours = steps_of(case, recorded["prelude"], version)
        found[case["name"]] = {"sdk": sdk, "cloudtrain": ours}
        case["step"] = sdk
    if record:
        Path(path).write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    else:
        print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], "--record" in sys.argv)
