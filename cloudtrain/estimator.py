"""`Estimator`: describes a training job and starts it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cloudtrain._sdk.members import (
    POSITIONS,
    SdkMembers,
    UploadedCode,
    by_name,
    drop_empty,
    rename_arguments,
    to_builtins,
)
from cloudtrain._sdk.objects import read_inputs, read_object
from cloudtrain.contract.text import print_line
from cloudtrain.errors import InvalidJob, TrainingFailed
from cloudtrain.spec import FIELDS, FileSystemInput, TrainingInput
from cloudtrain.spec.conversion import check_values
from cloudtrain.spec.variables import is_of_sdk, is_variable

if TYPE_CHECKING:
    from cloudtrain.job import Job
    from cloudtrain.platforms import Platform
    from cloudtrain.submission import Submission

Channel = str | TrainingInput | FileSystemInput | Mapping[str, Any]
Inputs = str | TrainingInput | FileSystemInput | Mapping[str, Channel]

DEFAULT_CHANNEL = "training"
"""The name of a channel that is given without one, as in the SageMaker SDK."""


class Estimator(SdkMembers):
    """The description of a training job, which can be started any number of times.

    Arguments have the names of the SageMaker Python SDK, version 2. The defaults are those of the user's config
    file, or else of the SDK. A single positional argument is the script. Several positional arguments, or one that
    is given with ``entry_point`` or is an ECR image, are those of the SDK's ``Estimator``: image, role, instance
    count, instance type, and so on.

    Args:
        entry_point: the script to run: a path in ``source_dir``, or a single file, packed with the modules next to it
            that it imports.
        source_dir: the folder to pack and send with the job, or an archive of it in S3.
        dependencies: further files and folders to put next to the script.
        git_config: the git repository that these paths are in: ``{"repo": "https://...", "branch": ..., "commit":
            ...}``, and for a private one ``token``, or ``username`` and ``password``. It is cloned when a job starts.
        arguments: the script's command line: ``["fit", "--data", "{channel.train}", "-vv"]`` reaches it unchanged,
            except that the folder of the channel replaces ``{channel.train}``.
        hyperparameters: options of the script: ``{"lr": 0.1}`` becomes ``--lr 0.1``. They precede ``arguments``.
        environment: variables for the script. Values of variables that look like secrets are never shown or stored.
        secrets: names of variables that the script gets from the environment of this process. Their values are in no
            request, record or log of cloudtrain: ``["HF_TOKEN"]``.
        distribution: how ranks are started, for example ``{"torch_distributed": {"enabled": True}}`` or
            ``{"processes": {"processes_per_host": 2}}``.
        image_uri: the container image, on platforms with containers.
        role: the role of the job, on platforms with roles.
        platform: the platform to run on: its name, or an object. Defaults to the config file's; else ``sagemaker``
            for ``ml.`` instance types, ``container`` for an image, and otherwise ``local``.
        platform_options: options of that platform.
        sagemaker_session: the AWS session for the ``sagemaker`` platform: a ``boto3.Session`` or a
            ``sagemaker.Session``.
        runtime: the program that starts the script in SageMaker's container: ``cloudtrain``, which works in any image
            with Python, or ``toolkit``, which AWS's images include.
        instance_type: the machine type of the hosts.
        instance_count: the number of hosts.
        spare_hosts: the number of further hosts that wait to take the place of one that is lost. Default: 0.
        min_instance_count: the number of hosts that the job needs to continue when others are lost or preempted and no
            spare host is available. Default: all of them.
        volume_size: the disk of each host in GB.
        max_run: the maximum duration of the job in seconds. Default: a day; on a cluster, the limit of the cluster.
        max_cost: the most that all attempts of the job may cost, in the currency of its price. At this cost, the job is
            stopped as a preempted job is. Refused where no price is known: see ``cloudtrain prices``.
        max_gpu_hours: the most GPU hours that all attempts of the job may use.
        max_retry_attempts: the number of times that a failed job is restarted, from its last checkpoint, without
            making progress; on SageMaker only after an internal error of AWS.
        hang_timeout: the job fails, and reports the Python stacks of all ranks, if a rank sends no heartbeat for this
            number of seconds, counted from its first heartbeat.
        hang_after: a job is reported as hanging if its ranks show no sign of life for this number of seconds. 0: never.
            Default: 300.
        on_hang: what happens then: a ``notice``, the default; ``stop``; or ``restart``, from the last checkpoint.
        join_timeout: the seconds within which all hosts must start and find one another, at least 5. Default: 600.
        host_timeout: the seconds for which the network between hosts may be down before the job fails, at least 5.
            Default: 30.
        stop_grace: the seconds that ranks have to exit after SIGTERM.
        output_path: the URI for the model and other outputs, in a folder with the job's name.
        code_location: the URI for packed sources.
        checkpoint_s3_uri: the URI for checkpoints. A later job with the same URI resumes from them.
        metric_definitions: metrics to find in the output: ``[{"Name": "loss", "Regex": "loss=([0-9.]+)"}]``.
        notify: messages about events of the job: ``[{"on": ["failed"], "slack": "$SLACK_WEBHOOK"}]``.
        base_job_name: the start of the job's name; defaults to the name of the image or the script.
        other: arguments of the SDK under older names. The arguments that are not listed here are the other fields of
            `cloudtrain.spec.TrainingJob`, under the same names.

    Raises:
        InvalidJob: an argument is unknown (the message suggests the nearest name), or is an argument of the SageMaker
            SDK that cloudtrain does not support (the hint names an alternative). Values are validated when the job
            is started.
    """

    _framework: ClassVar[str | None] = None
    """The framework for which the class selects AWS's image, if any."""
    _positions: ClassVar[tuple[str, ...]] = ()
    """The names of its positional arguments."""

    def __init__(
        self,
        *positional: Any,
        entry_point: str | Path | None = None,
        source_dir: str | Path | None = None,
        dependencies: Sequence[str] | None = None,
        arguments: Sequence[str] | None = None,
        hyperparameters: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        secrets: Sequence[str] | None = None,
        distribution: Mapping[str, Any] | None = None,
        image_uri: str | None = None,
        role: str | None = None,
        platform: str | Platform | None = None,
        platform_options: Mapping[str, Any] | None = None,
        sagemaker_session: Any = None,
        runtime: str | None = None,
        instance_type: str | None = None,
        instance_count: int | None = None,
        spare_hosts: int | None = None,
        min_instance_count: int | None = None,
        volume_size: int | None = None,
        max_run: int | None = None,
        max_cost: float | None = None,
        max_gpu_hours: float | None = None,
        max_retry_attempts: int | None = None,
        hang_timeout: float | None = None,
        hang_after: float | None = None,
        on_hang: str | None = None,
        join_timeout: float | None = None,
        host_timeout: float | None = None,
        stop_grace: float | None = None,
        output_path: str | None = None,
        code_location: str | None = None,
        checkpoint_s3_uri: str | None = None,
        metric_definitions: Sequence[Mapping[str, str]] | None = None,
        base_job_name: str | None = None,
        inputs: Inputs | None = None,
        job_name: str | None = None,
        framework: str | None = None,
        framework_version: str | None = None,
        py_version: str | None = None,
        transformers_version: str | None = None,
        pytorch_version: str | None = None,
        tensorflow_version: str | None = None,
        model_dir: str | bool | None = None,
        hyperparameter_encoding: str | None = None,
        container_entry_point: Sequence[str] | None = None,
        container_arguments: Sequence[str] | None = None,
        container_log_level: int | None = None,
        allow_secrets: bool | None = None,
        max_source_size: float | None = None,
        max_source_files: int | None = None,
        instance_groups: Sequence[Any] | None = None,
        instance_preferences: Sequence[Any] | None = None,
        keep_alive_period_in_seconds: int | None = None,
        training_plan: str | None = None,
        instance_placement_config: Mapping[str, Any] | None = None,
        use_spot_instances: bool | None = None,
        max_wait: int | None = None,
        max_pending_time_in_seconds: int | None = None,
        checkpoint_local_path: str | None = None,
        disable_output_compression: bool | None = None,
        input_mode: str | None = None,
        model_uri: str | None = None,
        model_channel_name: str | None = None,
        timeline: bool | None = None,
        notify: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        samples: bool | None = None,
        tags: Mapping[str, str] | Sequence[Mapping[str, str]] | None = None,
        subnets: Sequence[str] | None = None,
        security_group_ids: Sequence[str] | None = None,
        volume_kms_key: str | None = None,
        output_kms_key: str | None = None,
        encrypt_inter_container_traffic: bool | None = None,
        enable_network_isolation: bool | None = None,
        enable_sagemaker_metrics: bool | None = None,
        enable_infra_check: bool | None = None,
        enable_remote_debug: bool | None = None,
        enable_session_tag_chaining: bool | None = None,
        training_repository_access_mode: str | None = None,
        training_repository_credentials_provider_arn: str | None = None,
        debugger_hook_config: Any = None,
        rules: Sequence[Any] | None = None,
        profiler_config: Any = None,
        disable_profiler: bool | None = None,
        compiler_config: Any = None,
        tensorboard_output_config: Any = None,
        experiment_config: Mapping[str, str] | None = None,
        mlflow_config: Any = None,
        model_package_config: Any = None,
        git_config: Mapping[str, str] | None = None,
        **other: Any,
    ) -> None:
        named = {
            name: value for name, value in locals().items() if name not in ("self", "other", "positional")
        }
        given = {name: value for name, value in {**named, **other}.items() if value is not None}
        given = self._own_arguments({**self._by_name(positional, given), **given})
        given = drop_empty(rename_arguments(given))
        if self._framework:
            given["framework"] = self._framework
        self._session = given.pop("sagemaker_session", None)
        self.git_config = given.pop("git_config", None)
        for name in given:
            if name not in FIELDS or name in ("source", "cost_terms"):
                from cloudtrain.spec.explain import suggest

                raise InvalidJob(
                    f"{type(self).__name__} has no argument {name!r}", hint=suggest(name, FIELDS)
                )
        self._platform = None if isinstance(platform, (str, type(None))) else platform
        if self._platform:
            given["platform"] = self._platform.name
        check_values(given)
        self.fields = {name: to_builtins(value) for name, value in given.items()}
        self.jobs = []
        self.latest_training_job = None
        self.uploaded_code = None
        self._output_path = None

    @classmethod
    def _own_arguments(cls, given: dict[str, Any]) -> dict[str, Any]:
        """``given`` without the arguments that only this class has, and with its defaults."""
        return given

    @classmethod
    def _by_name(cls, positional: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
        """The positional arguments by name. Raises InvalidJob if one is also given by name."""
        first = positional[0] if positional else None
        is_image = is_variable(first) or ".dkr.ecr." in str(first)  # a variable has no text
        is_script = len(positional) == 1 and "entry_point" not in named and not is_image
        names = cls._positions or (("entry_point",) if is_script else POSITIONS)
        return by_name(cls.__name__, names, positional, named)

    @staticmethod
    def from_sagemaker(obj: Any, **arguments: Any) -> Estimator:
        """An Estimator with the arguments of an object of the SageMaker SDK, to run it on any platform.

        An object in local mode runs on the platform ``container``, with the same image and GPUs.

        Args:
            obj: an estimator of the SDK's version 2, or a ``ModelTrainer`` of version 3.
            arguments: override those of the object, for example ``platform="local"`` or ``runtime="toolkit"``.

        Raises:
            InvalidJob: ``obj`` uses a feature that cloudtrain does not support; the hint names an alternative.
        """
        platform = arguments.get("platform") or "container"
        is_container = getattr(platform, "name", platform) == "container"
        read = read_object(
            obj, arguments.get("instance_type"), finds_image=is_container and not arguments.get("image_uri")
        )
        return Estimator(**{**read, **arguments})

    def prepare(
        self,
        inputs: Inputs | None = None,
        *,
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> Submission:
        """Validate, pack and render the job, but upload and start nothing: a dry run.

        ``prepare(...).request`` is exactly the request that ``fit`` would submit.

        Raises:
            InvalidJob, InvalidSource, UnknownPlatform: as in `fit`.
        """
        return self._prepare(inputs, job_name, experiment_config)

    def _prepare(
        self,
        inputs: Inputs | None,
        job_name: str | None,
        experiment_config: Mapping[str, str] | None,
        *,
        submits: bool = False,
    ) -> Submission:
        """The job, packed and rendered. Its repository, if any, is cloned for it."""
        with self._cloned(self._fields(inputs, job_name, experiment_config)) as fields:
            from cloudtrain.submission import prepare  # slow to import, like everything that submits a job

            return prepare(fields, self._platform, self._session, submits=submits)

    @contextmanager
    def _cloned(self, fields: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The fields of a job, with paths in a clone of its repository, if it has one."""
        if not self.git_config:
            yield fields
            return
        from cloudtrain.packaging.git_clone import cloned

        with cloned(self.git_config, fields) as found:
            yield found

    def _fields(
        self,
        inputs: Inputs | None,
        job_name: str | None,
        experiment_config: Mapping[str, str] | None,
    ) -> dict[str, Any]:
        fields = dict(self.fields)
        inputs = read_inputs(inputs)
        if isinstance(inputs, TrainingInput) and inputs.input_mode:
            fields["input_mode"] = inputs.input_mode
        if inputs is not None:
            fields["inputs"] = _channels(inputs)
        if job_name is not None:
            fields["job_name"] = job_name
        elif any(job.name == fields.get("job_name") for job in self.jobs):
            # as in the SDK, each fit starts a new job
            fields.setdefault("base_job_name", fields.pop("job_name"))
        if experiment_config is not None:
            fields["experiment_config"] = to_builtins(experiment_config)
        return fields

    def fit(
        self,
        inputs: Inputs | None = None,
        wait: bool = True,
        logs: bool | str = "All",
        job_name: str | None = None,
        experiment_config: Mapping[str, str] | None = None,
    ) -> Job:
        """Start the job and, by default, wait for its end.

        The order of the arguments is that of the SageMaker SDK, version 2.

        Args:
            inputs: the input channels: ``{"train": "s3://bucket/train"}``. A channel is a URI (``s3://``,
                ``file://``), a local path, or a `TrainingInput`. A local file or folder is uploaded to S3 if the
                platform needs it there: once, below ``code_location``, under a hash of its content.
            wait: return when the job has ended.
            logs: while waiting, print the job's state changes and the output of its ranks. False, or the SDK's
                ``"None"``, prints nothing.
            job_name: defaults to the constructor's for the first job, and then to the base name and the time.
            experiment_config: the SageMaker experiment that the job belongs to.

        Raises:
            InvalidJob: an argument has a wrong value, or contradicts another.
            InvalidSource: the source cannot be packed.
            StorageError: a bucket is missing, an input is empty, or a server is unreachable.
            PlatformError: the platform refuses the job.
            TrainingFailed: the job failed; only if ``wait`` is true.
        """
        if is_of_sdk(self._session, "PipelineSession"):
            raise InvalidJob(
                "sagemaker_session: a PipelineSession starts no jobs, and fit() would start one",
                hint="Make the job a step of the pipeline: cloudtrain.pipelines.TrainingStep(name, estimator, inputs).",
            )
        says = wait and logs and logs != "None"
        submission = self._prepare(inputs, job_name, experiment_config, submits=True)
        for warning in submission.job_warnings:
            warnings.warn(warning, stacklevel=2)
        if says and submission.projection:
            print_line(f"Note: {submission.projection}")
        job = submission.submit(say=print_line if says else None)
        self.latest_training_job = job
        self.jobs.append(job)
        source = submission.job.source
        self.uploaded_code = UploadedCode(source.uri, submission.job.entry_point or "") if source else None
        self._output_path = submission.job.output_path
        again = submission.resubmission()
        __tracebackhide__ = True  # see _wait
        if wait:
            _wait(job, print_line if says else None, again)
        elif again:
            from cloudtrain.submission import NOT_WAITING

            warnings.warn(NOT_WAITING, stacklevel=2)
        return job

    def fit_array(
        self,
        values: Mapping[str, Sequence[Any]] | Sequence[Mapping[str, Any]],
        inputs: Inputs | None = None,
        *,
        job_name: str | None = None,
    ) -> list[Job]:
        """Start many jobs, which differ in some fields, and return without waiting for them.

        On Slurm, they are one array. Elsewhere, each is submitted by itself. A notebook shows the list as a table.

        Args:
            values: a list with one mapping of fields for each job: ``[{"hyperparameters": {"lr": 0.1}}, ...]``; or a
                mapping of lists, for all combinations of their values: ``{"hyperparameters.lr": [0.1, 0.01]}``.
            inputs: as for `fit`.
            job_name: the jobs are called ``NAME-0``, ``NAME-1`` and so on. Defaults to the base name and the time.

        Raises:
            InvalidJob: as for `fit`; or ``values`` name a field that does not exist.
            InvalidSource, StorageError, PlatformError: as for `fit`.
        """
        from cloudtrain.array import prepare_array
        from cloudtrain.spec.elements import array_elements

        with self._cloned(self._fields(inputs, job_name, None)) as fields:
            array = prepare_array(fields, array_elements(values), self._platform, self._session, submits=True)
        for warning in array.warnings:
            warnings.warn(warning, stacklevel=2)
        array.upload()
        return array.start(self.jobs.append)

    @classmethod
    def attach(
        cls, training_job_name: str, sagemaker_session: Any = None, model_channel_name: str = "model"
    ) -> Estimator:
        """An estimator for a job that was started earlier, by this user or another. Waits until the job has ended.

        Its attributes are those of the job, and `latest_training_job` is the job. `Job.attach` does not wait.

        Args:
            training_job_name: a job of any platform that was submitted from this machine, or a SageMaker training job.
            sagemaker_session: the AWS session of a SageMaker training job.
            model_channel_name: the name of the channel with the model to start from, if the job has one.

        Raises:
            JobNotFound: there is no such job.
        """
        from cloudtrain._sdk.attach import attached_arguments
        from cloudtrain.job import find_any

        job = find_any(training_job_name, sagemaker_session)
        is_framework = cls._framework is not None
        found = attached_arguments(job, model_channel_name, is_framework=is_framework)
        estimator = cls(**found, sagemaker_session=sagemaker_session)
        estimator.latest_training_job = job
        with suppress(TrainingFailed):  # logs() and describe() show why
            job.wait()
        return estimator


def _wait(
    job: Job, show: Callable[[str], object] | None, again: Callable[[Callable[[str], object]], bool] | None
) -> None:
    """Wait for the end of the job. Raises TrainingFailed.

    Args:
        show: prints a line of the job's output, or about the job.
        again: submits a failed job again, if that may help.
    """
    from cloudtrain._display.live import live_card
    from cloudtrain.platforms import print_states
    from cloudtrain.platforms.waiting import waiting_for

    __tracebackhide__ = True  # in a notebook, the traceback of a failed job is that of the cell
    with waiting_for(job.name), live_card(job.platform, job.name) as card:
        while True:
            if show:  # a card shows the states of the job
                with card.updating() if card else print_states(job.platform, job.name, show):
                    for line in job.follow():
                        show(line)
            description = job.until_final(card=card)
            try:
                job.conclude(description, show)
            except TrainingFailed:
                if again and again(show or (lambda line: None)):
                    continue
                raise
            return


def _channels(inputs: Inputs) -> dict[str, Any]:
    if isinstance(inputs, (str, Path, TrainingInput, FileSystemInput)) or is_variable(inputs):
        inputs = {DEFAULT_CHANNEL: inputs}
    if not isinstance(inputs, Mapping):
        raise InvalidJob(f"inputs: expected a URI or a dict of channels, got {type(inputs).__name__}")
    return {name: to_builtins(channel) for name, channel in inputs.items()}
