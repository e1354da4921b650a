"""Options of ``cloudtrain submit`` that contradict one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cloudtrain.cli._launchers import LAUNCHERS, NOT_LAUNCHERS
from cloudtrain.errors import InvalidJob
from cloudtrain.spec import apply_overrides

MODES = ("dry_run", "check", "diff")
"""The options that replace the submission."""

FIELDS = {
    "platform": "platform",
    "instance_type": "instance_type",
    "instance_count": "instance_count",
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
    """Refuse options of which one would silently override the other.

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
    """Refuse a repeated name, and a field that is set after a part of it, which it would replace."""
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
