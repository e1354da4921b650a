"""The description of one training job."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct

from cloudtrain.contract.source import GB, SourceLimits
from cloudtrain.errors import InvalidJob
from cloudtrain.spec._checks import check
from cloudtrain.spec._exec import argument_list, number_to_text, without_numpy
from cloudtrain.spec.conversion import check_values, convert
from cloudtrain.spec.distribution import Distribution
from cloudtrain.spec.inputs import Channel, FileSystemInput, InstanceGroup, InstancePreference, TrainingInput
from cloudtrain.spec.names import AUTO_IMAGE
from cloudtrain.spec.notify import NotifyRule, expand_rules
from cloudtrain.spec.sagemaker import (
    DebuggerHookConfig,
    MlflowConfig,
    ModelPackageConfig,
    ProfilerConfig,
    Rule,
    TensorBoardOutputConfig,
    TrainingCompilerConfig,
)
from cloudtrain.spec.secrets import REDACTED, redact
from cloudtrain.spec.variables import check_no_variables

Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
Seconds = Annotated[int, Meta(ge=1, le=10**9)]
Runtime = Literal["cloudtrain", "toolkit"]
InputMode = Annotated[str, Meta(pattern="^(File|FastFile|Pipe)$")]


class Source(Struct, frozen=True, omit_defaults=True):
    """The packed source of a job: the URI that its archive has or will have, and the hash of its bytes."""

    uri: str
    sha256: str
    git_commit: str = ""
    """The commit of the files; ends with ``-dirty`` if they differed from it."""


class CostTerms(Struct, frozen=True, omit_defaults=True):
    """The price of a job when it is submitted, and its cap. Each attempt has the price of the day on which it starts.

    Attributes:
        per_hour: the price of an hour of all nodes; None if it is not known.
        source: the source of the price, for display, with its ``date``.
        later: the prices in the table for later days, each with the day ``since`` which it applies.
        nodes: the nodes that the prices are for, to read the table again: see `cloudtrain.cost.terms.Nodes`.
        gpus: the number of GPUs of all nodes; 0 if it is not known.
        max_cost, max_gpu_hours: as in the job; 0 if they are not set.
        cap: the cap that is reached first, for display, such as ``max_cost of 50 EUR``; empty if there is none.
        cap_seconds: how long the job may run before the cap is reached.
        reserve: how many seconds before that the job is stopped, so that it has time to save.
    """

    per_hour: float | None = None
    currency: str = "USD"
    source: str = ""
    date: str = ""
    later: tuple[dict[str, Any], ...] = ()
    nodes: tuple[dict[str, Any], ...] = ()
    gpus: int = 0
    max_cost: float = 0.0
    max_gpu_hours: float = 0.0
    cap: str = ""
    cap_seconds: float = 0.0
    reserve: float = 0.0


class TrainingJob(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The complete description of a job for a platform. Fields have their names in the SageMaker SDK, version 2.

    Create a job with `from_dict`, which validates it. Change fields of a valid job with ``msgspec.structs.replace``.
    Sizes are in GB, times in seconds.
    """

    # the program
    entry_point: str | None = None
    source_dir: str | None = None
    dependencies: list[str] = []
    arguments: list[str] = []
    hyperparameters: dict[str, Any] = {}
    hyperparameter_encoding: Literal["sagemaker", "json"] = "sagemaker"
    environment: dict[str, str] = {}
    secrets: list[str] = []
    inputs: dict[str, Channel] = {}
    distribution: Distribution | None = None
    container_entry_point: list[str] | None = None
    container_arguments: list[str] | None = None
    container_log_level: int = 20
    allow_secrets: bool = False
    max_source_size: Annotated[float, Meta(gt=0)] = SourceLimits.size / GB
    max_source_files: Positive = SourceLimits.files
    source: Source | None = None

    # its image
    runtime: Runtime | None = None
    image_uri: str | None = None
    framework: Literal["pytorch", "tensorflow", "huggingface", "mxnet", "sklearn", "xgboost"] | None = None
    framework_version: str | None = None
    py_version: str | None = None
    transformers_version: str | None = None
    pytorch_version: str | None = None
    tensorflow_version: str | None = None
    model_dir: str | Literal[False] | None = None

    # its hosts
    platform: str | None = None
    platform_options: dict[str, Any] = {}
    instance_type: str | None = None
    instance_count: Positive = 1
    spare_hosts: NotNegative = 0
    min_instance_count: Positive | None = None
    instance_groups: list[InstanceGroup] = []
    instance_preferences: list[InstancePreference] = []
    volume_size: NotNegative = 30
    keep_alive_period_in_seconds: NotNegative | None = None
    training_plan: str | None = None
    instance_placement_config: dict[str, Any] = {}

    # time limits and retries
    max_run: Seconds | None = None
    max_cost: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    max_gpu_hours: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    cost_terms: CostTerms | None = None
    max_wait: Seconds | None = None
    max_pending_time_in_seconds: Seconds | None = None
    use_spot_instances: bool = False
    max_retry_attempts: Annotated[int, Meta(ge=0, le=30)] = 0
    hang_after: Annotated[float, Meta(ge=0)] = 300.0
    on_hang: Literal["notice", "stop", "restart"] = "notice"
    hang_timeout: Annotated[float, Meta(gt=0)] | None = None
    join_timeout: Annotated[float, Meta(ge=5)] = 600.0
    host_timeout: Annotated[float, Meta(ge=5)] = 30.0
    stop_grace: Annotated[float, Meta(ge=0, le=120)] = 120.0

    # names and storage
    job_name: str | None = None
    base_job_name: str | None = None
    output_path: str | None = None
    code_location: str | None = None
    checkpoint_s3_uri: str | None = None
    checkpoint_local_path: str | None = None
    disable_output_compression: bool = False
    input_mode: InputMode = "File"
    model_uri: str | None = None
    model_channel_name: str = "model"
    metric_definitions: list[dict[str, str]] = []
    timeline: bool = False
    notify: list[NotifyRule] = []
    samples: bool = True
    tags: list[dict[str, str]] = []

    # cloud accounts
    role: str | None = None
    subnets: list[str] = []
    security_group_ids: list[str] = []
    volume_kms_key: str | None = None
    output_kms_key: str | None = None
    encrypt_inter_container_traffic: bool = False
    enable_network_isolation: bool = False
    enable_sagemaker_metrics: bool | None = None
    enable_infra_check: bool | None = None
    enable_remote_debug: bool | None = None
    enable_session_tag_chaining: bool | None = None
    training_repository_access_mode: str | None = None
    training_repository_credentials_provider_arn: str | None = None
    debugger_hook_config: DebuggerHookConfig | bool | None = None
    rules: list[Rule] = []
    profiler_config: ProfilerConfig | None = None
    disable_profiler: bool = False
    compiler_config: TrainingCompilerConfig | None = None
    tensorboard_output_config: TensorBoardOutputConfig | None = None
    experiment_config: dict[str, str] = {}
    mlflow_config: MlflowConfig | None = None
    model_package_config: ModelPackageConfig | None = None

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> TrainingJob:
        """Create a job from ``fields``, and validate it.

        Raises:
            InvalidJob: a field is unknown, has the wrong type, is out of range, or contradicts another. The message
                starts with the path of the field.
        """
        check_values(fields)
        check_no_variables(fields)
        job = convert(_expand_short_forms(fields), cls)
        check(job)
        return job

    @classmethod
    def from_json(cls, text: str | bytes) -> TrainingJob:
        """Like `from_dict`, from a JSON object. Raises InvalidJob."""
        try:
            fields = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            hint = "Pass the text of one JSON object, as to_json() returns it."
            raise InvalidJob(f"the text is not a JSON object: {error}", hint=hint) from None
        return cls.from_dict(fields)

    def to_dict(self) -> dict[str, Any]:
        """The fields that differ from the defaults; `from_dict` restores the job from them."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        return fields

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @property
    def channels(self) -> dict[str, Channel]:
        """The inputs, and the channel of the model to start from, if any."""
        model = TrainingInput(self.model_uri) if self.model_uri else None
        return {**self.inputs, self.model_channel_name: model} if model else self.inputs

    @property
    def shown_environment(self) -> dict[str, str]:
        """The job's variables as a request shows them: ``***`` is the value of each secret."""
        return {**redact(self.environment), **dict.fromkeys(self.secrets, REDACTED)}

    @property
    def source_limits(self) -> SourceLimits:
        return SourceLimits(int(self.max_source_size * GB), self.max_source_files)

    @property
    def instance_types(self) -> list[str]:
        """The types of the hosts: of all groups, or those that the job accepts, in order; empty if it names none."""
        return (
            [group.instance_type for group in self.instance_groups]
            or [preference.instance_type for preference in self.instance_preferences]
            or ([self.instance_type] if self.instance_type else [])
        )

    @property
    def host_count(self) -> int:
        """The number of hosts; with `instance_preferences`, that of the first."""
        return self.host_counts[0]

    @property
    def host_counts(self) -> list[int]:
        """The numbers of hosts that the job may have: one for each preference, if each has its own."""
        if self.instance_groups:
            return [sum(group.instance_count for group in self.instance_groups)]
        return [one.instance_count or self.instance_count for one in self.instance_preferences] or [
            self.instance_count
        ]


FIELDS = TrainingJob.__struct_fields__
"""The names of all fields."""

RUNTIMES = get_args(Runtime)
"""The programs that can start the script in a cloud's container: cloudtrain's runtime, or the image's toolkit."""


def _expand_short_forms(fields: dict[str, Any]) -> dict[str, Any]:
    """Expand the short forms that users may write: a URI as a channel, a dict as tags, numbers in the environment."""
    fields = {key: value for key, value in fields.items() if value is not None}
    inputs = fields.get("inputs")
    if isinstance(inputs, dict):
        fields["inputs"] = {name: _channel(name, channel) for name, channel in inputs.items()}
    distribution = fields.get("distribution")
    if isinstance(distribution, dict) and isinstance(distribution.get("instance_groups"), list):
        groups = [_group_name(group) for group in distribution["instance_groups"]]
        fields["distribution"] = {**distribution, "instance_groups": groups}
    hyperparameters = fields.get("hyperparameters")
    if isinstance(hyperparameters, dict):
        fields["hyperparameters"] = without_numpy(hyperparameters)
    environment = fields.get("environment")
    if isinstance(environment, dict):
        fields["environment"] = {key: number_to_text(value) for key, value in environment.items()}
    if "arguments" in fields:
        fields["arguments"] = argument_list(fields["arguments"])
    if isinstance(fields.get("notify"), (list, dict)):
        fields["notify"] = expand_rules(fields["notify"])
    tags = fields.get("tags")
    if isinstance(tags, dict):
        fields["tags"] = [{"Key": key, "Value": str(value)} for key, value in tags.items()]
    return fields


def _channel(name: str, channel: Any) -> TrainingInput | FileSystemInput:
    if isinstance(channel, str):
        channel = {"s3_data": channel}
    is_mounted = isinstance(channel, FileSystemInput) or (
        isinstance(channel, dict) and "file_system_id" in channel
    )
    where = f"inputs.{name}"
    if not isinstance(channel, (dict, TrainingInput, FileSystemInput)):
        from cloudtrain.spec.explain import given  # slow to import

        raise InvalidJob(f"{where}: expected a URI or a mapping, got {given(channel)}")
    return convert(channel, FileSystemInput, where) if is_mounted else convert(channel, TrainingInput, where)


def _group_name(group: Any) -> Any:
    """The name of a group: the SageMaker SDK accepts the group itself instead of its name."""
    return group.get("instance_group_name", group) if isinstance(group, dict) else group


def base_name(job: TrainingJob) -> str | None:
    """The start of a generated job name: ``base_job_name``, or the name of the image, as in the SageMaker SDK.

    None if the job has neither.
    """
    if job.base_job_name:
        return job.base_job_name
    if job.image_uri and job.image_uri != AUTO_IMAGE:
        repository = job.image_uri.rpartition("/")[2]
        return re.split("[:@]", repository)[0]
    if job.framework == "huggingface":
        return f"huggingface-{'tensorflow' if job.tensorflow_version else 'pytorch'}-training"
    if job.framework == "sklearn":
        return "sagemaker-scikit-learn"
    if job.framework == "xgboost":
        return "xgboost" if job.framework_version in ("1", "latest") else "sagemaker-xgboost"
    return f"{job.framework}-training" if job.framework else None
