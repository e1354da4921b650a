"""The facade: describe a training job, and start it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Union

from cloudtrain.errors import CloudtrainError, InvalidJob, nearest
from cloudtrain.job import Job
from cloudtrain.platforms import Platform
from cloudtrain.spec import FIELDS, TrainingInput
from cloudtrain.submission import Submission, prepare

Inputs = Union[str, TrainingInput, Mapping[str, Union[str, TrainingInput, Mapping[str, Any]]]]

DEFAULT_CHANNEL = "training"
"""The channel of inputs that name none, as in the SageMaker SDK."""


class Estimator:
    """A training job that can be started, again and again.

    The argument names are those of the SageMaker Python SDK, version 2; what is not given has that SDK's
    default, or the one in the user's config file.

    Args:
        entry_point: the script to run: a path in ``source_dir``, or a file on its own.
        source_dir: the folder that is packed and sent along.
        dependencies: more files and folders, put beside the script.
        hyperparameters: become the script's command line: ``{"lr": 0.1}`` is ``--lr 0.1``.
        environment: variables for the script. Names that look like secrets are never shown or stored.
        distribution: how ranks are started: ``{"torch_distributed": {"enabled": True}}``,
            ``{"processes": {"processes_per_host": 2}}``.
        platform: where to run, by name or as an object; ``local`` unless the config file or an ``ml.`` instance
            type say otherwise.
        platform_options: what only that platform understands.
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
        base_job_name: the beginning of the job's name; else that of the script.
        arguments: all others that `cloudtrain.spec.TrainingJob` has fields for.

    Raises:
        InvalidJob: an argument is unknown; the message has the nearest right name. Values are checked when
            the job is started.
    """

    def __init__(
        self,
        entry_point: str | Path | None = None,
        *,
        source_dir: str | Path | None = None,
        dependencies: Sequence[str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        distribution: Mapping[str, Any] | None = None,
        platform: str | Platform | None = None,
        platform_options: Mapping[str, Any] | None = None,
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
        named = {name: value for name, value in locals().items() if name not in ("self", "arguments")}
        for name in arguments:
            if name not in FIELDS or name == "source":
                raise InvalidJob(f"Estimator has no argument {name!r}", hint=nearest(name, FIELDS))
        given = {**named, **arguments}
        self._platform = None if platform is None or isinstance(platform, str) else platform
        if self._platform:
            given["platform"] = self._platform.name
        self.arguments = {name: _to_builtins(value) for name, value in given.items() if value is not None}
        self.latest_training_job: Job | None = None

    def set_hyperparameters(self, **hyperparameters: Any) -> None:
        """Add hyperparameters to those given before."""
        self.arguments["hyperparameters"] = {**self.arguments.get("hyperparameters", {}), **hyperparameters}

    def prepare(self, inputs: Inputs | None = None, *, job_name: str | None = None) -> Submission:
        """Validate, pack and render, without uploading or starting anything: the dry run.

        ``prepare(...).request`` is exactly what ``fit`` would ask the platform for.

        Raises:
            InvalidJob, InvalidSource, UnknownPlatform: as `fit`.
        """
        fields = dict(self.arguments)
        if inputs is not None:
            fields["inputs"] = _channels(inputs)
        if job_name is not None:
            fields["job_name"] = job_name
        return prepare(fields, self._platform)

    def fit(
        self,
        inputs: Inputs | None = None,
        wait: bool = True,
        logs: bool | str = "All",
        job_name: str | None = None,
    ) -> Job:
        """Start the job, and wait for its end unless told otherwise.

        The order of the arguments is that of the SageMaker SDK, version 2.

        Args:
            inputs: the channels: ``{"train": "s3://bucket/train"}``; also ``file://`` URIs, folders of this
                machine, `TrainingInput`.
            wait: return when the job has ended.
            logs: print what the ranks print while waiting; false, or the SDK's ``"None"``: print nothing.
            job_name: else one is made of the base name and the time.

        Raises:
            InvalidJob: an argument has a wrong value, or contradicts another.
            InvalidSource: the source cannot be packed.
            StorageError: a bucket is missing, an input empty, a server gone.
            PlatformError: the platform refuses the job.
            TrainingFailed: the job failed while it was waited for.
        """
        job = self.prepare(inputs, job_name=job_name).submit()
        self.latest_training_job = job
        if wait:
            if logs and logs != "None":
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


def _to_builtins(value: Any) -> Any:
    """Mappings, sequences and paths as the dicts, lists and strings that validation wants."""
    if isinstance(value, Mapping):
        return {key: _to_builtins(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_builtins(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _channels(inputs: Inputs) -> dict[str, Any]:
    if isinstance(inputs, (str, TrainingInput)):
        inputs = {DEFAULT_CHANNEL: inputs}
    if not isinstance(inputs, Mapping):
        raise InvalidJob(f"inputs: expected a URI or a dict of channels, got {type(inputs).__name__}")
    return {name: _channel(channel) for name, channel in inputs.items()}


def _channel(channel: Any) -> Any:
    """A folder or file of this machine as a URI; everything else as it is."""
    if isinstance(channel, (str, Path)) and "://" not in str(channel) and Path(channel).exists():
        return Path(channel).absolute().as_uri()
    return channel
