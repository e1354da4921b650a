"""The fields of the job of ``cloudtrain submit``: from its file, and from options, which must not contradict it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from cloudtrain.config import read_config
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import apply_overrides, read_job_file

JOB_FILES = (".yaml", ".yml", ".json")


def names_script(file: str) -> bool:
    """Whether ``file`` is a script, not a job file."""
    return not file.lower().endswith(JOB_FILES)


def fields_of(file: str) -> dict[str, Any]:
    """The fields of the job file ``file``; if it is a script, a job with only this entry point."""
    return {"entry_point": file} if names_script(file) else read_job_file(Path(file))


def job_fields(file: str, script_args: tuple[str, ...], options: dict[str, Any]) -> dict[str, Any]:
    """The fields of ``file`` and the user's defaults, overridden by the options and the script's arguments."""
    described = fields_of(file)
    fields = {**read_config(), **described}
    distribution = fields.get("distribution")
    check_contradictions(
        options,
        names_script=names_script(file),
        script_args=script_args,
        launcher=chosen_launcher(options, distribution),
    )
    distribution = distribution_of(options, distribution, file if described.get("distribution") else None)
    if distribution is not None:
        fields["distribution"] = distribution
    plain = {field: options[name] for name, field in FIELDS.items() if "." not in field}
    fields.update({field: value for field, value in plain.items() if value is not None})
    if options["inputs"]:
        fields["inputs"] = {
            **(fields.get("inputs") or {}),
            **dict(_pair(text, "--input", "CHANNEL=URI, such as train=data") for text in options["inputs"]),
        }
    if options["variables"]:
        given = dict(_pair(text, "--env", "NAME=VALUE, such as LEVEL=2") for text in options["variables"])
        fields["environment"] = {**(fields.get("environment") or {}), **given}
    secrets = fields.get("secrets") or []
    if options["secrets"] and isinstance(secrets, list):
        fields["secrets"] = [*secrets, *(name for name in options["secrets"] if name not in secrets)]
    own: dict[str, Any] = {"mount_source": _folder(fields)} if options["mount_source"] else {}
    if options["gpus"]:
        own["gpus"] = int(options["gpus"]) if options["gpus"].isdecimal() else options["gpus"]
    if own:
        fields["platform_options"] = {**(fields.get("platform_options") or {}), **own}
    fields = apply_overrides(_with_long_channels(fields, options["settings"]), options["settings"])
    arguments = fields.get("arguments") or []
    if script_args and isinstance(arguments, list):
        fields["arguments"] = [*arguments, *script_args]
    if options["convert_notebook"]:
        fields["entry_point"] = _converted(fields)
    return fields


def _converted(fields: dict[str, Any]) -> str:
    """Convert the job's notebook to a script next to it, the new entry point. Raises InvalidJob, InvalidSource."""
    from cloudtrain.packaging.notebook import NOTEBOOK, convert_notebook

    entry_point = str(fields.get("entry_point") or "")
    if not entry_point.lower().endswith(NOTEBOOK):
        raise InvalidJob(
            f"--convert-notebook: {entry_point or 'the job'} is not a notebook", hint="Leave the option out."
        )
    inside = Path(fields.get("source_dir") or "", entry_point)
    script = convert_notebook(inside if inside.exists() else Path(entry_point))
    return str(Path(entry_point).with_name(script.name))


def _with_long_channels(fields: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """``fields``, with mappings for the channels that ``--set inputs.CHANNEL.OPTION`` refines."""
    inputs = fields.get("inputs")
    if not isinstance(inputs, dict):
        return fields
    paths = [setting.partition("=")[0] for setting in settings]
    refined = {
        name: {"s3_data": channel}
        for name, channel in inputs.items()
        if isinstance(channel, str) and any(path.startswith(f"inputs.{name}.") for path in paths)
    }
    return {**fields, "inputs": {**inputs, **refined}} if refined else fields


def _folder(fields: dict[str, Any]) -> str:
    """The absolute path of the source folder: ``source_dir``, or the folder of the script."""
    return os.path.abspath(fields.get("source_dir") or os.path.dirname(fields.get("entry_point", "")) or ".")


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    """The name and the value of a repeatable option. A variable may be empty, a channel may not."""
    name, separator, value = text.partition("=")
    if not separator or not name or (option == "--input" and not value):
        raise click.BadParameter(f"{text!r} does not have the form {form}", param_hint=option)
    return name, value


MODES = ("dry_run", "check", "diff")
"""The options that replace the submission."""

FIELDS = {
    "platform": "platform",
    "instance_type": "instance_type",
    "instance_count": "instance_count",
    "spare_hosts": "spare_hosts",
    "min_instance_count": "min_instance_count",
    "gpus": "platform_options.gpus",
    "image": "image_uri",
    "source_dir": "source_dir",
    "output_path": "output_path",
    "checkpoint_s3_uri": "checkpoint_s3_uri",
    "name": "job_name",
    "mount_source": "platform_options.mount_source",
}
"""The options that set a single field, and that field."""


def check_contradictions(
    options: Mapping[str, Any], *, names_script: bool, script_args: Sequence[str], launcher: str
) -> None:
    """Refuse two options if one would silently override the other.

    Args:
        options: all options, by their names with underscores.
        names_script: whether FILE is a script, not a job file.
        script_args: the arguments given after ``--``.
        launcher: the distribution that the options choose or refine.

    Raises:
        InvalidJob: for the first contradiction; the message names both options, the hint is what to do.
    """
    _check_choices(options)
    paths = [text.partition("=")[0] for text in options["settings"]]
    _check_repetitions("--set", paths)
    _check_repetitions("--input", [text.partition("=")[0] for text in options["inputs"]])
    _check_repetitions("--env", [text.partition("=")[0] for text in options["variables"]])
    fields = _fields_set(options, names_script)
    for path in paths:
        for option, field in fields.items():
            if _contains(path, field) or (_contains(field, path) and not _refines_input(field, path)):
                raise _twice(option, f"--set {path}", max(path, field, key=len))
        _check_distribution(options, path, launcher)
    _check_script_args(options["settings"], script_args)


def _check_choices(options: Mapping[str, Any]) -> None:
    _check_exclusive(
        [_flag(name) for name in LAUNCHERS if options[name]],
        "a job has one launcher, which starts all ranks",
    )
    _check_exclusive(
        [_flag(name) for name in MODES if options[name]],
        "each of them does something else instead of submitting the job",
        "Run the command once with each of them.",
    )
    for name, needed in (("export", "dry_run"), ("upload", "export")):
        if options[name] and not options[needed]:
            raise InvalidJob(f"{_flag(name)} needs {_flag(needed)}", hint=f"Add {_flag(needed)}.")
    _check_exclusive(
        [_flag(name) for name in ("wait", "no_wait") if options[name]],
        "the command either waits for the job or does not",
    )


def _check_exclusive(given: Sequence[str], why: str, hint: str = "Use only one of them.") -> None:
    if len(given) > 1:
        names = f"{', '.join(given[:-1])} and {given[-1]}"
        raise InvalidJob(f"{names} cannot be combined: {why}", hint=hint)


def _check_repetitions(option: str, names: Sequence[str]) -> None:
    """Refuse a repeated name, and a field that is set after one of its parts, which it would replace."""
    for number, name in enumerate(names):
        for earlier in names[:number]:
            if earlier == name:
                raise InvalidJob(f"{option} {name} is given more than once", hint="Give it once.")
            if option == "--set" and _contains(name, earlier):
                raise InvalidJob(
                    f"--set {name} replaces --set {earlier}",
                    hint=f"Give --set {name} first, or only one of them.",
                )


def _fields_set(options: Mapping[str, Any], names_script: bool) -> dict[str, str]:
    """The fields that options other than ``--set`` set, by option."""
    fields = {_flag(name): field for name, field in FIELDS.items() if options[name]}
    if names_script:
        fields["FILE"] = "entry_point"
    if options["secrets"]:
        fields["--secret"] = "secrets"
    for option, values, field in (("--input", "inputs", "inputs"), ("--env", "variables", "environment")):
        names = (text.partition("=")[0] for text in options[values])
        fields |= {f"{option} {name}": f"{field}.{name}" for name in names}
    return fields


def _check_script_args(settings: Sequence[str], script_args: Sequence[str]) -> None:
    """Refuse arguments after ``--`` that would follow, and thereby override, a field that ``--set`` sets."""
    fields = apply_overrides({}, settings)
    if script_args and "arguments" in fields:
        raise _twice("--set arguments", "the arguments after --", "arguments")
    values = fields.get("hyperparameters")
    given = {argument.partition("=")[0] for argument in script_args}
    for name in values if isinstance(values, dict) else ():
        option = f"-{name}" if len(name) == 1 else f"--{name}"
        if option in given:
            raise InvalidJob(
                f"--set hyperparameters.{name} and the arguments after -- both pass {option} to the script",
                hint="Use only one of them.",
            )


def _check_distribution(options: Mapping[str, Any], path: str, kind: str) -> None:
    """``--set distribution.KIND.OPTION`` refines the launcher of a flag; other fields contradict the flag."""
    processes = options["processes_per_host"] is not None
    flags = [_flag(name) for name in LAUNCHERS if options[name]]
    flag = flags[0] if flags else "--processes-per-host" if processes else None
    top, *rest = path.split(".")
    if flag is None or top != "distribution" or (rest and rest[0] in NOT_LAUNCHERS):
        return
    if rest[:1] != [kind] or len(rest) < 2:
        raise InvalidJob(
            f"{flag} and --set {path} both choose the distribution",
            hint=f"Use only one of them. {flag} can be refined with --set distribution.{kind}.OPTION=VALUE.",
        )
    if processes and rest[1] == "processes_per_host":
        raise _twice("--processes-per-host", f"--set {path}", path)


def _refines_input(field: str, path: str) -> bool:
    """Whether ``path`` is an option of the channel at ``field``, other than its URI."""
    return field.startswith("inputs.") and path not in (field, f"{field}.s3_data")


def _contains(field: str, other: str) -> bool:
    """Whether ``other`` is the field at the dotted path ``field``, or a part of it."""
    return f"{other}.".startswith(f"{field}.")


def _twice(one: str, other: str, field: str) -> InvalidJob:
    return InvalidJob(f"{one} and {other} both set {field}", hint="Use only one of them.")


def _flag(name: str) -> str:
    if name == "export":
        return "--as"
    return f"--{name.replace('_', '-')}"


LAUNCHERS = {"torchrun": "torch_distributed", "mpirun": "mpi", "horovod": "horovod"}
"""The options that choose a launcher, and the ``distribution`` of each."""

COUNTED = (*LAUNCHERS.values(), "processes", "agent")
"""The distributions that have ``processes_per_host``."""

NOT_LAUNCHERS = ("instance_groups", "smdistributed")
"""Fields of ``distribution`` that can be combined with a launcher."""


def chosen_launcher(options: Mapping[str, Any], distribution: Any) -> str:
    """The distribution that the options choose or refine: by default that of the job, else ``processes``."""
    flags = [kind for name, kind in LAUNCHERS.items() if options[name]]
    enabled = _enabled(distribution)
    return flags[0] if flags else enabled[0] if enabled else "processes"


def distribution_of(options: Mapping[str, Any], distribution: Any, file: str | None) -> Any:
    """``distribution``, with the launcher and the number of ranks that the options choose.

    Args:
        distribution: that of the job file, or the default of the config file.
        file: the job file that contains it; None if it is a default, which an option may replace.

    Raises:
        InvalidJob: the job file chooses another launcher, or one whose ranks cannot be counted.
    """
    processes = options["processes_per_host"]
    flag = next((f"--{name}" for name in LAUNCHERS if options[name]), None)
    if (flag is None and processes is None) or not isinstance(distribution, (dict, type(None))):
        return distribution  # validation reports other types
    kind = chosen_launcher(options, distribution)
    others = [name for name in _enabled(distribution) if name != kind]
    if flag and others and file:
        name = Path(file).name
        raise InvalidJob(
            f"{name} chooses the distribution {others[0]}, but {flag} chooses {kind}",
            hint=f"Remove it in {name}, or drop {flag}.",
        )
    if kind not in COUNTED:
        raise InvalidJob(
            f"--processes-per-host: the distribution {kind} sets the number of ranks itself",
            hint="Drop --processes-per-host, or choose another distribution.",
        )
    fields = {name: value for name, value in (distribution or {}).items() if name not in others}
    given = fields.get(kind) or {}
    if not isinstance(given, dict):
        return distribution
    refined = {name: value for name, value in given.items() if name != "enabled"}
    if processes is not None:
        refined["processes_per_host"] = processes
    return {**fields, kind: refined}


def _enabled(distribution: Any) -> list[str]:
    """The launchers that ``distribution`` enables."""
    if not isinstance(distribution, dict):
        return []
    return [
        name
        for name, options in distribution.items()
        if name not in NOT_LAUNCHERS and isinstance(options, dict) and options.get("enabled", True)
    ]
