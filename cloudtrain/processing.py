"""Processing jobs, with the classes of the SageMaker SDK: a script that reads and writes folders, on any platform.

A processing job is an ordinary job. On SageMaker it is a training job: it runs on the instances, in the images and with
the role of training jobs, and has the log, failure report and metrics of any job.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from cloudtrain._sdk.members import by_name
from cloudtrain.aws import Aws
from cloudtrain.config import read_config
from cloudtrain.contract import JobStatus
from cloudtrain.environment import run_processing
from cloudtrain.errors import InvalidJob
from cloudtrain.estimator import Estimator
from cloudtrain.frameworks import HuggingFace, MXNet, PyTorch, SKLearn, TensorFlow, XGBoost
from cloudtrain.job import Job
from cloudtrain.platforms.sagemaker.accounts import KnownAccounts
from cloudtrain.spec import TrainingInput, TrainingJob
from cloudtrain.spec.names import new_job_name
from cloudtrain.storage import join_uri
from cloudtrain.submission import default_platform

BASE = PurePosixPath("/opt/ml/processing")
"""The folder that has all inputs and outputs, as on SageMaker."""
CODE = BASE / "input/code"
"""The folder of a script that is given by its URI."""

_LAST: tuple[str, ...] = (
    *("volume_size_in_gb", "volume_kms_key", "output_kms_key", "max_runtime_in_seconds", "base_job_name"),
    *("sagemaker_session", "env", "tags", "network_config"),
)
"""The last positional arguments of all processors, in the SDK's order."""

_OF_FRAMEWORK: tuple[str, ...] = (
    *("framework_version", "role", "instance_count", "instance_type", "py_version", "image_uri", "command"),
    *(*_LAST[:3], "code_location", *_LAST[3:]),
)
"""The positional arguments of a processor whose class names its framework."""

_RENAMED = {"volume_size_in_gb": "volume_size", "max_runtime_in_seconds": "max_run", "env": "environment"}
"""Arguments that have another name in an `Estimator`."""

_ONLY_PROCESSING = ("dataset_definition", "app_managed", "feature_store_output")
"""Parts of the SDK's inputs and outputs that only SageMaker's own processing jobs have."""

_STATUSES = {
    JobStatus.PENDING: "InProgress",
    JobStatus.RUNNING: "InProgress",
    JobStatus.INTERRUPTED: "Stopped",
}


@dataclass
class ProcessingInput:
    """A folder of a job with the data at ``source``: a URI, or a file or folder of this machine.

    Args:
        destination: the folder, below ``/opt/ml/processing``.
        input_name: defaults to ``input-1``, ``input-2`` and so on.
        s3_data_distribution_type: ``FullyReplicated``, or ``ShardedByS3Key`` for a part of the objects on each host.
    """

    source: str | None = None
    destination: str | None = None
    input_name: str | None = None
    s3_data_type: str = "S3Prefix"
    s3_input_mode: str = "File"
    s3_data_distribution_type: str = "FullyReplicated"
    s3_compression_type: str = "None"


@dataclass
class ProcessingOutput:
    """A folder of a job, which is uploaded to ``destination`` when the script has ended with exit status 0.

    Args:
        source: the folder, below ``/opt/ml/processing``.
        destination: a URI. Default: below the default bucket on SageMaker; elsewhere the job's outputs.
        output_name: defaults to ``output-1``, ``output-2`` and so on.
    """

    source: str | None = None
    destination: str | None = None
    output_name: str | None = None
    s3_upload_mode: str = "EndOfJob"


@dataclass
class NetworkConfig:
    """The network of the job's hosts, as the SageMaker SDK describes it."""

    enable_network_isolation: bool | None = None
    security_group_ids: Sequence[str] | None = None
    subnets: Sequence[str] | None = None
    encrypt_inter_container_traffic: bool | None = None


class ProcessingJob:
    """A processing job: its `Job`, its inputs and its outputs."""

    def __init__(
        self, job: Job, inputs: Sequence[ProcessingInput], outputs: Sequence[ProcessingOutput]
    ) -> None:
        self.job = job
        self.job_name = job.name
        self.inputs = list(inputs)
        self.outputs = list(outputs)

    def wait(self, logs: bool = True) -> None:
        """Wait until the job has ended. Raises TrainingFailed."""
        self.job.wait(logs=logs)

    def stop(self) -> None:
        self.job.stop()

    def describe(self) -> dict[str, Any]:
        """The job in the form of SageMaker's DescribeProcessingJob, with the fields that every platform can provide."""
        found = self.job.describe()
        outputs = [
            {
                "OutputName": output.output_name,
                "S3Output": {
                    "S3Uri": output.destination
                    or join_uri(found.output_data or "", output.output_name or ""),
                    "LocalPath": output.source,
                    "S3UploadMode": output.s3_upload_mode,
                },
            }
            for output in self.outputs
        ]
        inputs = [
            {"InputName": one.input_name, "S3Input": {"S3Uri": one.source, "LocalPath": one.destination}}
            for one in self.inputs
        ]
        reason = {"FailureReason": found.failure.summary()} if found.failure else {}
        return {
            "ProcessingJobName": self.job_name,
            "ProcessingJobStatus": _STATUSES.get(found.status, str(found.status)),
            "ProcessingInputs": inputs,
            "ProcessingOutputConfig": {"Outputs": outputs},
            **reason,
        }


class Processor:
    """Runs the program of an image on data. The arguments are those of the SageMaker SDK, version 2, in its order.

    Args:
        entrypoint: the program and its first arguments.
        max_runtime_in_seconds: ``max_run`` of the job.
        env: ``environment`` of the job.
        fields: other arguments of `Estimator`, for example ``platform="local"``.
    """

    JOB_CLASS_NAME = "processing-job"
    estimator_cls: type[Estimator] = Estimator

    _positions: ClassVar[tuple[str, ...]] = (
        "role",
        "image_uri",
        "instance_count",
        "instance_type",
        "entrypoint",
        *_LAST,
    )

    def __init__(
        self,
        *positional: Any,
        role: str | None = None,
        image_uri: str | None = None,
        instance_count: int | None = None,
        instance_type: str | None = None,
        entrypoint: Sequence[str] | None = None,
        volume_size_in_gb: int | None = None,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        max_runtime_in_seconds: int | None = None,
        base_job_name: str | None = None,
        sagemaker_session: Any = None,
        env: Mapping[str, str] | None = None,
        tags: Any = None,
        network_config: Any = None,
        **fields: Any,
    ) -> None:
        named = {
            name: value for name, value in locals().items() if name not in ("self", "positional", "fields")
        }
        given = _given({**named, **fields})
        given |= by_name(type(self).__name__, self._positions, positional, given)
        self._entrypoint = _strings("entrypoint", given.pop("entrypoint", None))
        network = _parts("network_config", NetworkConfig, given.pop("network_config", None))
        self._fields = {**network, **{_RENAMED.get(name, name): value for name, value in given.items()}}
        self.jobs: list[ProcessingJob] = []
        self.latest_job: ProcessingJob | None = None

    def run(
        self,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Start the job and, by default, wait for its end.

        Raises:
            InvalidJob: an input or output lacks a part, or names a folder outside of ``/opt/ml/processing``.
            TrainingFailed: the job failed; only if ``wait`` is true.
        """
        if not self._entrypoint:
            raise InvalidJob(
                "entrypoint: the program of an image cannot be found without it",
                hint="Set entrypoint=[...]; for a script of your own, use ScriptProcessor.",
            )
        self._start(
            self._entrypoint, {}, inputs, outputs, arguments, wait, logs, job_name, experiment_config, kms_key
        )

    def _start(
        self,
        command: Sequence[str],
        source: Mapping[str, Any],
        inputs: Sequence[ProcessingInput] | None,
        outputs: Sequence[ProcessingOutput] | None,
        arguments: Sequence[str] | None,
        wait: bool,
        logs: bool,
        job_name: str | None,
        experiment_config: Mapping[str, str] | None,
        kms_key: str | None,
    ) -> None:
        if kms_key and kms_key != self._fields.get("output_kms_key"):
            raise InvalidJob(
                "kms_key: the script is encrypted with the key of the job's outputs",
                hint=f"Set output_kms_key of the {type(self).__name__}, and no other kms_key.",
            )
        named = [_named(one, "input", number) for number, one in enumerate(inputs or (), 1)]
        results = [_named(one, "output", number) for number, one in enumerate(outputs or (), 1)]
        estimator = self._estimator({**source, "arguments": _strings("arguments", arguments)})
        name = job_name or new_job_name(estimator.base_job_name or "processing")
        _place_outputs(results, estimator, name)
        plan = {
            "command": list(command),
            "inputs": {_channel(one): one.destination for one in named},
            "outputs": {
                one.output_name: {"source": one.source, "destination": one.destination} for one in results
            },
        }
        environment = {**(estimator.environment or {}), run_processing.PLAN: json.dumps(plan)}
        estimator.environment = environment
        channels = {_channel(one): _training_input(one) for one in named}
        job = estimator.fit(channels or None, False, job_name=name, experiment_config=experiment_config)
        self.latest_job = ProcessingJob(job, named, results)
        self.jobs.append(self.latest_job)
        if wait:
            self.latest_job.wait(logs)

    def _estimator(self, source: Mapping[str, Any]) -> Estimator:
        wrapper = {"entry_point": run_processing.__file__, **source}
        return self.estimator_cls(**{**_given(self._fields), **_given(wrapper)})


class ScriptProcessor(Processor):
    """Runs a script on data, in an image or, on ``local``, with your own Python.

    Args:
        command: the interpreter and its options. Default: ``["python3"]``.
    """

    _positions = ("role", "image_uri", "command", "instance_count", "instance_type", *_LAST)

    def __init__(self, *positional: Any, **arguments: Any) -> None:
        super().__init__(*positional, **arguments)
        if self._entrypoint:
            raise InvalidJob("entrypoint: a script has none", hint="Set command to its interpreter.")
        self.command = _strings("command", self._fields.pop("command", None)) or ["python3"]

    def run(  # type: ignore[override] # as in the SDK
        self,
        code: str,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
    ) -> None:
        """Run ``code``: a file of this machine, or the URI of one. See `Processor.run`."""
        script, source, more = _script(code)
        inputs = [*(inputs or ()), *more]
        command = [*self.command, script]
        self._start(
            command, source, inputs, outputs, arguments, wait, logs, job_name, experiment_config, kms_key
        )


class FrameworkProcessor(ScriptProcessor):
    """Runs a script, or one of a folder, in AWS's image of a framework; on ``local``, with your own Python."""

    _positions = ("estimator_cls", *_OF_FRAMEWORK)

    def __init__(self, *positional: Any, **arguments: Any) -> None:
        super().__init__(*positional, **arguments)
        self.estimator_cls = self._fields.pop("estimator_cls", None) or type(self).estimator_cls

    def run(  # type: ignore[override] # as in the SDK
        self,
        code: str,
        source_dir: str | None = None,
        dependencies: Sequence[str] | None = None,
        git_config: Mapping[str, str] | None = None,
        inputs: Sequence[ProcessingInput] | None = None,
        outputs: Sequence[ProcessingOutput] | None = None,
        arguments: Sequence[str] | None = None,
        wait: bool = True,
        logs: bool = True,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
        kms_key: str | None = None,
        codeartifact_repo_arn: str | None = None,
    ) -> None:
        """Run ``code``, a file in ``source_dir`` or of this machine. See `Processor.run`."""
        if codeartifact_repo_arn:
            raise InvalidJob(
                "codeartifact_repo_arn: not supported by cloudtrain",
                hint="Name the repository in the source's requirements.txt: --index-url https://...",
            )
        if source_dir is None:
            script, source, more = _script(code)
        else:
            wrapper = Path(run_processing.__file__)
            script, more = code, []
            source = {"entry_point": wrapper.name, "source_dir": source_dir, "dependencies": [str(wrapper)]}
        source = {**source, "git_config": git_config}
        source["dependencies"] = [*source.get("dependencies", ()), *(dependencies or ())]
        self._start(
            [*self.command, script],
            source,
            [*(inputs or ()), *more],
            outputs,
            arguments,
            wait,
            logs,
            job_name,
            experiment_config,
            kms_key,
        )


class PyTorchProcessor(FrameworkProcessor):
    """Runs a script in AWS's image of PyTorch: see `FrameworkProcessor`."""

    estimator_cls = PyTorch
    _positions = _OF_FRAMEWORK


class TensorFlowProcessor(FrameworkProcessor):
    """Runs a script in AWS's image of TensorFlow: see `FrameworkProcessor`."""

    estimator_cls = TensorFlow
    _positions = _OF_FRAMEWORK


class MXNetProcessor(FrameworkProcessor):
    """Runs a script in AWS's image of MXNet: see `FrameworkProcessor`."""

    estimator_cls = MXNet
    _positions = _OF_FRAMEWORK


class XGBoostProcessor(FrameworkProcessor):
    """Runs a script in AWS's image of XGBoost: see `FrameworkProcessor`."""

    estimator_cls = XGBoost
    _positions = _OF_FRAMEWORK


class HuggingFaceProcessor(FrameworkProcessor):
    """Runs a script in AWS's image of Hugging Face: see `FrameworkProcessor`."""

    estimator_cls = HuggingFace
    _positions = (
        *("role", "instance_count", "instance_type"),
        *("transformers_version", "tensorflow_version", "pytorch_version"),
        *_OF_FRAMEWORK[4:],
    )


class SKLearnProcessor(ScriptProcessor):
    """Runs a script in AWS's image of scikit-learn: see `ScriptProcessor`."""

    estimator_cls = SKLearn
    _positions = ("framework_version", "role", "instance_count", "instance_type", "command", *_LAST)


def _strings(name: str, values: Sequence[str] | None) -> list[str]:
    """``values`` as a list of strings. Raises InvalidJob for a single string, which would be split into letters."""
    if isinstance(values, str):
        raise InvalidJob(f"{name}: {values!r} is not a list", hint=f"Write {name}={values.split()!r}.")
    return [str(value) for value in values or ()]


def _parts(name: str, kind: type[Any], value: Any) -> dict[str, Any]:
    """The attributes of ``value``, which is a ``kind``, the SDK's class of this name, or None.

    Raises InvalidJob if it is something else, or has a part that ``kind`` lacks.
    """
    known = kind.__dataclass_fields__
    if value is not None and not all(hasattr(value, part) for part in known):
        raise InvalidJob(f"{name}: {value!r} is not a {kind.__name__}", hint=f"Write {kind.__name__}(...).")
    if lost := [part for part in _ONLY_PROCESSING if part not in known and getattr(value, part, None)]:
        raise InvalidJob(
            f"{name}: {lost[0]} is not supported by cloudtrain",
            hint="The script can read and write other services with boto3.",
        )
    return {part: getattr(value, part, None) for part in known}


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _script(code: str) -> tuple[str, dict[str, Any], list[ProcessingInput]]:
    """The path of a script in the job, the fields that pack it, and its input if it is given by its URI."""
    if "://" in str(code) and not str(code).startswith("file://"):
        name = PurePosixPath(str(code)).name
        return str(CODE / name), {}, [ProcessingInput(str(code), str(CODE), "code")]
    path = Path(str(code).removeprefix("file://"))
    if not path.is_file():
        raise InvalidJob(
            f"code: there is no file {path}", hint="Pass a path of this machine, or the URI of a file in S3."
        )
    return path.name, {"dependencies": [str(path)]}, []


def _named(one: Any, kind: str, number: int) -> Any:
    """A copy of an input or output that has a name. Raises InvalidJob if it lacks a part."""
    own = ProcessingInput if kind == "input" else ProcessingOutput
    where = f"{kind}s[{number - 1}]"
    fields = _parts(where, own, one)
    fields[f"{kind}_name"] = fields[f"{kind}_name"] or f"{kind}-{number}"
    folder = fields["destination" if kind == "input" else "source"]
    if not fields["source"] or not folder:
        raise InvalidJob(
            f"{where}: needs source and destination" if kind == "input" else f"{where}: needs source",
            hint=f"For example: {own.__name__}(source=..., destination='{BASE}/{kind}').",
        )
    path = PurePosixPath(folder)
    if BASE not in path.parents or ".." in path.parts:
        raise InvalidJob(f"{where}: {folder} is not below {BASE}", hint=f"For example: {BASE}/{kind}.")
    if fields.get("s3_compression_type") == "Gzip":
        raise InvalidJob(f"{where}: data is copied as it is", hint="Let the script uncompress it: gzip.open.")
    if (
        fields.get("s3_input_mode", "File") != "File"
        or fields.get("s3_upload_mode", "EndOfJob") != "EndOfJob"
    ):
        warnings.warn(f"{where}: data is copied before and after the script, not streamed", stacklevel=4)
    return own(**fields)


def _channel(one: ProcessingInput) -> str:
    """The name of the channel, with only the characters of shell variables: letters, digits and underscores."""
    return "".join(char if char.isalnum() else "_" for char in str(one.input_name))


def _training_input(one: ProcessingInput) -> TrainingInput:
    return TrainingInput(
        str(one.source),
        distribution=one.s3_data_distribution_type or "FullyReplicated",
        s3_data_type=one.s3_data_type or "S3Prefix",
    )


def _place_outputs(outputs: Sequence[ProcessingOutput], estimator: Estimator, name: str) -> None:
    """On SageMaker, give outputs without a destination their URIs; elsewhere, they are among the job's own outputs."""
    job = TrainingJob.from_dict({**read_config(), **estimator.fields})
    if (job.platform or default_platform(job)) != "sagemaker":
        estimator.disable_output_compression = True
        return
    missing = [output for output in outputs if not output.destination]
    base = Aws.of(estimator._session, KnownAccounts()).default_output_path if missing else ""
    for output in missing:
        output.destination = f"{base}{name}/output/{output.output_name}"
