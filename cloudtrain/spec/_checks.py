"""Validates what types cannot express: contradictions between fields, and meaningless values."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from cloudtrain.errors import InvalidJob, nearest
from cloudtrain.spec._exec import check_arguments, check_channels, check_environment, check_hyperparameters
from cloudtrain.spec.conversion import DEFAULT_MAX_RUN
from cloudtrain.spec.distribution import Agent
from cloudtrain.spec.inputs import TrainingInput
from cloudtrain.spec.names import check_base_name, check_job_name
from cloudtrain.spec.secrets import check_secrets

if TYPE_CHECKING:
    from cloudtrain.spec.job import TrainingJob

MOST_PREFERENCES = 5
"""The limit of a training job (CreateTrainingJob, ``InstancePreferences``)."""


def check_preferences(job: TrainingJob) -> None:
    """Raises InvalidJob for the first contradiction between the preferences, or with another field."""
    preferences = job.instance_preferences
    if len(preferences) > MOST_PREFERENCES:
        raise InvalidJob(
            f"instance_preferences: there are {len(preferences)}, and SageMaker accepts {MOST_PREFERENCES}",
            hint="Keep the best ones.",
        )
    for field, hint in (
        ("instance_type", "Put it first in the list."),
        (
            "instance_groups",
            "Use one or the other: a job has either one type, chosen from the list, or groups.",
        ),
        ("instance_placement_config", "It needs one instance_type."),
        ("use_spot_instances", "The list has on-demand instances and training plans only."),
    ):
        if getattr(job, field):
            raise InvalidJob(f"instance_preferences: cannot be combined with {field}", hint=hint)
    types = [preference.instance_type for preference in preferences]
    for number, kind in enumerate(types):
        if kind in types[:number]:
            raise InvalidJob(
                f"instance_preferences[{number}].instance_type: {kind} is in the list already",
                hint="Name each instance type once.",
            )
    _check_counts(job)
    planned = [number for number, one in enumerate(preferences) if one.training_plan_arns]
    if job.training_plan and planned:
        raise InvalidJob(
            f"training_plan: instance_preferences[{planned[0]}] has its own training_plan_arns",
            hint="Give each preference its own plan, or set training_plan for all.",
        )


def _check_counts(job: TrainingJob) -> None:
    """Raises InvalidJob if only some preferences have an instance_count, or all do and the job has one, too."""
    counted = [one.instance_count is not None for one in job.instance_preferences]
    if any(counted) and not all(counted):
        raise InvalidJob(
            f"instance_preferences[{counted.index(False)}]: has no instance_count, but others have",
            hint="Give every preference its instance_count, or none: instance_count is then that of the job.",
        )
    if any(counted) and job.instance_count != 1:
        raise InvalidJob(
            "instance_count: every preference in instance_preferences has its own",
            hint="Remove the count of the job, or those of the preferences.",
        )


def check_agent(agent: Agent) -> None:
    """Raises InvalidJob if it has neither preset nor command, both, or a command that cannot be parsed."""
    from cloudtrain.contract.agent import PRESETS, parse_command, preset_command

    if bool(agent.command) == bool(agent.preset):
        raise InvalidJob(
            "distribution.agent: set either preset or command",
            hint=f"preset is one of {', '.join(PRESETS)}; command is the command line of any other launcher.",
        )
    if agent.options and not agent.preset:
        raise InvalidJob(
            "distribution.agent.options: they are added to a preset",
            hint="Write them into command, or set preset.",
        )
    if agent.preset == "ray" and agent.processes_per_host:
        raise InvalidJob(
            "distribution.agent.processes_per_host: the preset ray runs the script once, on the first host",
            hint="Leave it out, and choose the number of workers in the script (ScalingConfig).",
        )
    field = "options" if agent.preset else "command"
    try:
        parse_command(preset_command(agent.preset, agent.options) if agent.preset else agent.command)
    except ValueError as error:
        raise InvalidJob(
            f"distribution.agent.{field}: {error}",
            hint="docs/reference/launchers.md lists the placeholders. The command is split like a shell command.",
        ) from None


URI_FIELDS = ("output_path", "code_location", "checkpoint_s3_uri", "model_uri")


def check(job: TrainingJob) -> None:
    """Raises InvalidJob for the first error in ``job``."""
    _check_names(job)
    check_hyperparameters(job.hyperparameters, as_json=job.hyperparameter_encoding == "json")
    check_arguments(job.arguments)
    check_channels(job.arguments, job.channels)
    check_environment(job.environment)
    check_secrets(job.secrets, job.environment)
    if job.notify:
        from cloudtrain.spec.notify import check_notify

        check_notify(job.notify)
    _check_values(job)
    _check_distribution(job)
    _check_hangs(job)
    _check_contradictions(job)
    if job.instance_preferences:
        check_preferences(job)


def _check_names(job: TrainingJob) -> None:
    if job.job_name is not None:
        check_job_name(job.job_name)
    if job.base_job_name is not None:
        check_base_name(job.base_job_name)
    for channel in job.inputs:
        if not re.fullmatch(r"[A-Za-z0-9.\-_]{1,64}", channel) or channel in (".", ".."):
            raise InvalidJob(
                f"inputs: {channel!r} is not a valid channel name",
                hint="Use up to 64 letters, digits, '.', '-' and '_'.",
            )


def _check_values(job: TrainingJob) -> None:
    for field in URI_FIELDS:
        _check_uri(field, getattr(job, field))
    for name, channel in job.inputs.items():
        if isinstance(channel, TrainingInput):
            _check_uri(f"inputs.{name}", channel.s3_data)
    for number, definition in enumerate(job.metric_definitions):
        if set(definition) != {"Name", "Regex"}:
            raise InvalidJob(
                f"metric_definitions[{number}]: expected the keys Name and Regex, got {', '.join(definition)}",
                hint="For example: {Name: loss, Regex: 'loss=([0-9.]+)'}",
            )
        try:
            re.compile(definition["Regex"])
        except re.error as error:
            raise InvalidJob(
                f"metric_definitions[{number}].Regex: {error}",
                hint="Write a regular expression of Python, for example: 'loss=([0-9.]+)'.",
            ) from None


def _check_uri(field: str, uri: str | None) -> None:
    if uri is None or re.match(r"(s3|gs)://[^/]|file:///", uri):
        return
    hint = (
        f"Did you mean file://{uri}?"
        if uri.startswith("/")
        else "Write s3://bucket/prefix, gs://bucket/prefix or file:///folder."
    )
    raise InvalidJob(f"{field}: {uri!r} is not an s3://, gs:// or file:// URI", hint=hint)


def _check_distribution(job: TrainingJob) -> None:
    if job.distribution is None:
        return
    enabled = job.distribution.enabled
    launchers = set(enabled) - {"smdistributed"}
    if len(launchers) > 1 or (len(enabled) > 1 and not launchers <= {"mpi", "torch_distributed"}):
        raise InvalidJob(
            f"distribution: {' and '.join(enabled)} are enabled, but a job has only one",
            hint="Remove all but one, or set enabled to false in the others.",
        )
    libraries = job.distribution.smdistributed
    if libraries and libraries.dataparallel and libraries.modelparallel:
        raise InvalidJob(
            "distribution.smdistributed: dataparallel and modelparallel cannot be combined",
            hint="Remove one of them.",
        )
    on_pytorch = job.framework == "pytorch" or (job.framework == "huggingface" and not job.tensorflow_version)
    if "parameter_server" in enabled and on_pytorch:
        raise InvalidJob(
            "distribution: PyTorch has no parameter server, so every host would train alone",
            hint='Use {"torch_distributed": {}}, or {"mpi": {}}.',
        )
    groups = [group.instance_group_name for group in job.instance_groups]
    for group in job.distribution.instance_groups:
        if group not in groups:
            raise InvalidJob(
                f"distribution.instance_groups: there is no instance group {group!r}",
                hint=nearest(group, groups) if groups else "Define it in instance_groups.",
            )
    if job.distribution.agent and job.distribution.agent.enabled:
        check_agent(job.distribution.agent)
    for name, kind in enabled.items():
        try:
            shlex.split(getattr(kind, "custom_mpi_options", ""))
        except ValueError as error:
            raise InvalidJob(
                f"distribution.{name}.custom_mpi_options: cannot be split like a shell command: {error}",
                hint="Close every quote, or put a backslash before a literal one.",
            ) from None


def _check_hangs(job: TrainingJob) -> None:
    """Raises InvalidJob if on_hang ends a job that detects no hangs, or restarts one that allows no retries."""
    if job.on_hang == "notice":
        return
    if not job.hang_after or not job.samples:
        off = "samples is off" if job.hang_after else "hang_after is 0"
        raise InvalidJob(
            f"on_hang: {job.on_hang} needs to find hangs, but {off}", hint="Remove one of the two fields."
        )
    if job.on_hang == "restart" and not job.max_retry_attempts:
        raise InvalidJob(
            "on_hang: restart needs max_retry_attempts",
            hint="Set it to how often a hang may restart the job.",
        )


def _check_contradictions(job: TrainingJob) -> None:
    if job.instance_groups and (job.instance_type or job.instance_count != 1):
        raise InvalidJob(
            "instance_groups: cannot be combined with instance_type or instance_count",
            hint="Each group has its own type and count: remove the others.",
        )
    for field in ("spare_hosts", "min_instance_count"):
        if job.instance_groups and getattr(job, field):
            raise InvalidJob(
                f"{field}: cannot be combined with instance_groups, whose hosts differ",
                hint="Remove one of the two fields.",
            )
    longest = job.max_run or DEFAULT_MAX_RUN
    if job.use_spot_instances and (job.max_wait is None or job.max_wait < longest):
        raise InvalidJob(
            "use_spot_instances: needs a max_wait of at least max_run",
            hint=f"max_wait includes the run itself. For example: max_wait={2 * longest}",
        )
    if job.max_wait is not None and not job.use_spot_instances:
        raise InvalidJob("max_wait: needs use_spot_instances=True", hint="Set it, or remove max_wait.")
    if bool(job.subnets) != bool(job.security_group_ids):
        raise InvalidJob(
            "subnets and security_group_ids: set both or neither", hint="A job in your VPC needs both."
        )
    if job.model_dir and "model_dir" in job.hyperparameters:
        raise InvalidJob("model_dir: hyperparameters.model_dir is set too", hint="Remove one of them.")
    if job.source_dir and not job.entry_point:
        raise InvalidJob("source_dir: needs an entry_point", hint="Name the script in source_dir to run.")
    if job.dependencies and not job.entry_point:
        raise InvalidJob("dependencies: needs an entry_point", hint="Name the script that uses them.")
    if job.model_uri and job.model_channel_name in job.inputs:
        raise InvalidJob(
            f"inputs.{job.model_channel_name}: model_uri uses this channel",
            hint="Rename the channel, or set model_channel_name.",
        )
    if job.training_repository_credentials_provider_arn and not job.training_repository_access_mode:
        raise InvalidJob(
            "training_repository_credentials_provider_arn: needs training_repository_access_mode",
            hint="For a registry that requires credentials, set training_repository_access_mode='Vpc'.",
        )
    profiler = job.profiler_config
    if (
        profiler
        and profiler.profile_params
        and (profiler.framework_profile_params or profiler.disable_profiler)
    ):
        raise InvalidJob(
            "profiler_config: profile_params cannot be combined with framework_profile_params or disable_profiler",
            hint="Remove one of them.",
        )
    if job.disable_profiler and job.profiler_config and not job.profiler_config.disable_profiler:
        raise InvalidJob("profiler_config: contradicts disable_profiler=True", hint="Remove one of them.")
