"""The facade: describe a training job, and start it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

import msgspec

from cloudtrain._sdk_arguments import POSITIONS, drop_empty, rename_arguments
from cloudtrain._sdk_objects import read_inputs, read_object
from cloudtrain.errors import CloudtrainError, InvalidJob, nearest
from cloudtrain.job import Job
from cloudtrain.platforms import Platform, print_states
from cloudtrain.spec import FIELDS, FileSystemInput, TrainingInput
from cloudtrain.submission import Submission, prepare

Channel = Union[str, TrainingInput, FileSystemInput, Mapping[str, Any]]
Inputs = Union[str, TrainingInput, FileSystemInput, Mapping[str, Channel]]

DEFAULT_CHANNEL = "training"
"""The channel of inputs that name none, as in the SageMaker SDK."""


class Estimator:
    """A training job that can be started, again and again.

    The argument names are those of the SageMaker Python SDK, version 2; what is not given has that SDK's
    default, or the one in the user's config file. One positional argument is the script; several, or one beside an
    ``entry_point`` or of ECR, are those of that SDK's ``Estimator``: image, role, instance count, instance type, ...

    Args:
        entry_point: the script to run: a path in ``source_dir``, or a file on its own.
        source_dir: the folder that is packed and sent along; or an archive of it in S3.
        dependencies: more files and folders, put beside the script.
        hyperparameters: become the script's command line: ``{"lr": 0.1}`` is ``--lr 0.1``.
        environment: variables for the script. Names that look like secrets are never shown or stored.
        distribution: how ranks are started: ``{"torch_distributed": {"enabled": True}}``,
            ``{"processes": {"processes_per_host": 2}}``.
        image_uri: the image of the container, where the platform has containers.
        role: the role that the job acts as, where the platform has roles.
        platform: where to run, by name or as an object; ``local`` unless the config file or an ``ml.`` instance
            type say otherwise.
        platform_options: what only that platform understands.
        sagemaker_session: the AWS session of a job that goes to SageMaker: a ``boto3.Session``, or a
            ``sagemaker.Session``. No other platform asks for it.
        runtime: what starts the script in SageMaker's container: ``cloudtrain``, in any image with Python; or
            ``toolkit``, what AWS's images have for it.
        instance_type: the kind of machine.
        instance_count: how many of them, each one a host of the job.
        volume_size: GB of disk on each host.
        max_run: seconds after which the job is stopped.
        max_retry_attempts: how often a failed job is started again, from its last checkpoint.
        hang_timeout: seconds without a sign of life from a rank after which the job fails, with the Python
            stacks of all ranks.
        stop_grace: seconds that ranks have after SIGTERM.
        output_path: where model and outputs go, in a folder of the job's name.
        code_location: where packed sources go.
        checkpoint_s3_uri: where checkpoints are kept, and found again by a later job.
        metric_definitions: ``[{"Name": "loss", "Regex": "loss=([0-9.]+)"}]``, looked for in the output.
        base_job_name: the beginning of the job's name; else that of the image, or of the script.
        arguments: all others that `cloudtrain.spec.TrainingJob` has fields for.

    Raises:
        InvalidJob: an argument is unknown; the message has the nearest right name. Or it is one of the SageMaker SDK
            that cloudtrain has no use for; the hint says what to do. Values are checked when the job is started.
    """

    def __init__(
        self,
        *positional: Any,
        entry_point: str | Path | None = None,
        source_dir: str | Path | None = None,
        dependencies: Sequence[str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        distribution: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        role: str | None = None,
        platform: str | Platform | None = None,
        platform_options: Mapping[str, Any] | None = None,
        sagemaker_session: Any = None,
        runtime: str | None = None,
        instance_type: str | None = None,
        instance_count: int | None = None,
        volume_size: int | None = None,
        max_run: int | None = None,
        max_retry_attempts: int | None = None,
        hang_timeout: float | None = None,
        stop_grace: float | None = None,
        output_path: str | None = None,
        code_location: str | None = None,
        checkpoint_s3_uri: str | None = None,
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        base_job_name: str | None = None,
        **arguments: Any,
    ) -> None:
        named = {
            name: value for name, value in locals().items() if name not in ("self", "arguments", "positional")
        }
        given = {name: value for name, value in {**named, **arguments}.items() if value is not None}
        given = drop_empty(rename_arguments({**given, **_by_name(positional, given)}))
        self._session = given.pop("sagemaker_session", None)
        for name in given:
            if name not in FIELDS or name == "source":
                raise InvalidJob(
                    f"{type(self).__name__} has no argument {name!r}", hint=nearest(name, FIELDS)
                )
        self._platform = None if isinstance(platform, (str, type(None))) else platform
        if self._platform:
            given["platform"] = self._platform.name
        self.arguments = {name: _to_builtins(value) for name, value in given.items()}
        self.latest_training_job: Job | None = None

    @staticmethod
    def from_sagemaker(obj: Any, **arguments: Any) -> Estimator:
        """The Estimator that does what an object of the SageMaker SDK does, on any platform.

        Args:
            obj: an estimator of its version 2, or a ``ModelTrainer`` of version 3.
            arguments: go before what the object says: ``platform="local"``, ``runtime="toolkit"``, ...

        Raises:
            InvalidJob: it wants something that cloudtrain has no argument for; the hint says what to do.
        """
        return Estimator(**{**read_object(obj, arguments.get("instance_type")), **arguments})

    def hyperparameters(self) -> dict[str, Any]:
        """The hyperparameters given so far."""
        return dict(self.arguments.get("hyperparameters", {}))

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add hyperparameters to those given before."""
        self.arguments["hyperparameters"] = {**self.arguments.get("hyperparameters", {}), **hyperparameters}

    def prepare(
        self,
        inputs: Inputs | None = None,
        *,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> Submission:
        """Validate, pack and render, without uploading or starting anything: the dry run.

        ``prepare(...).request`` is exactly what ``fit`` would ask the platform for.

        Raises:
            InvalidJob, InvalidSource, UnknownPlatform: as `fit`.
        """
        fields = dict(self.arguments)
        inputs = read_inputs(inputs)
        if isinstance(inputs, TrainingInput) and inputs.input_mode:
            fields["input_mode"] = inputs.input_mode
        if inputs is not None:
            fields["inputs"] = _channels(inputs)
        if job_name is not None:
            fields["job_name"] = job_name
        if experiment_config is not None:
            fields["experiment_config"] = _to_builtins(experiment_config)
        return prepare(fields, self._platform, self._session)

    def fit(
        self,
        inputs: Inputs | None = None,
        wait: bool = True,
        logs: bool | str = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> Job:
        """Start the job, and wait for its end unless told otherwise.

        The order of the arguments is that of the SageMaker SDK, version 2.

        Args:
            inputs: the channels: ``{"train": "s3://bucket/train"}``; also ``file://`` URIs, folders of this
                machine, `TrainingInput`.
            wait: return when the job has ended.
            logs: print while waiting what the job waits for and what its ranks print; false, or the SDK's
                ``"None"``: print nothing.
            job_name: else one is made of the base name and the time.
            experiment_config: the experiment of SageMaker's that the job belongs to.

        Raises:
            InvalidJob: an argument has a wrong value, or contradicts another.
            InvalidSource: the source cannot be packed.
            StorageError: a bucket is missing, an input empty, a server gone.
            PlatformError: the platform refuses the job.
            TrainingFailed: the job failed while it was waited for.
        """
        job = self.prepare(inputs, job_name=job_name, experiment_config=experiment_config).submit()
        self.latest_training_job = job
        if wait:
            if logs and logs != "None":
                with print_states(job.platform, job.name, print):
                    for line in job.follow():
                        print(line)  # noqa: T201 - as the SageMaker SDK does
            job.wait()
        return job

    @property
    def model_data(self) -> str | None:
        """The URI of the model that the latest job left.

        Raises:
            CloudtrainError: no job was started yet.
        """
        if self.latest_training_job is None:
            raise CloudtrainError("the Estimator has started no job yet", hint="Call fit() first.")
        return self.latest_training_job.model_data

    attach = staticmethod(Job.attach)


def _by_name(positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    """The positional arguments by their names. Raises InvalidJob where one is given by its name too."""
    is_script = len(positional) == 1 and "entry_point" not in named and ".dkr.ecr." not in str(positional[0])
    names = ("entry_point",) if is_script else POSITIONS
    if len(positional) > len(names):
        raise InvalidJob(f"Estimator takes {len(names)} positional arguments, not {len(positional)}")
    for name in names[: len(positional)]:
        if name in named:
            raise InvalidJob(
                f"Estimator got {name!r} twice: by its place and by its name",
                hint="Several positional arguments are an image, a role, an instance count, ...; name them.",
            )
    return {name: value for name, value in zip(names, positional) if value is not None}


def _to_builtins(value: Any) -> Any:
    """Mappings, sequences, paths and our own small structs as the dicts, lists and strings that validation wants."""
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if isinstance(value, Mapping):
        return {key: _to_builtins(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_builtins(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _channels(inputs: Inputs) -> dict[str, Any]:
    if isinstance(inputs, (str, Path, TrainingInput, FileSystemInput)):
        inputs = {DEFAULT_CHANNEL: inputs}
    if not isinstance(inputs, Mapping):
        raise InvalidJob(f"inputs: expected a URI or a dict of channels, got {type(inputs).__name__}")
    return {name: _channel(channel) for name, channel in inputs.items()}


def _channel(channel: Any) -> Any:
    """A folder or file of this machine as a URI; everything else as validation wants it."""
    if isinstance(channel, (str, Path)) and "://" not in str(channel) and Path(channel).exists():
        return Path(channel).absolute().as_uri()
    return _to_builtins(channel)
