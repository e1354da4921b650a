"""Translates ``custom_mpi_options``, the user's options for mpirun, for Open MPI 4 and 5 and for MPICH.

Users write them for Open MPI 4, as in SageMaker's documentation. Open MPI 5, whose mpirun is PRRTE's ``prterun``,
requires two dashes before long options and has renamed parameters: see "The mpirun command" in its documentation, and
``prte_info --all``.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from cloudtrain.errors import InvalidJob

JOBS_OWN = frozenset(
    (
        *("-np", "-n", "-c", "-N", "-npernode", "-npersocket", "-pernode"),
        *("-H", "-host", "-hostfile", "-machinefile", "-default-hostfile", "-nolocal"),
    )
)
"""Options for hosts and numbers of ranks, which the job determines, with one dash, as from `_plain`."""

_SHORT = frozenset(("-np", "-mca", "-gmca", "-tune", "-am"))
"""Options that every version accepts with one dash."""

_DROPPED = frozenset(("-q", "-quiet"))
"""Options that Open MPI 5 neither has nor needs."""

_PARAMETERS = {"-mca": 2, "-gmca": 2, "-prtemca": 2, "-pmixmca": 2}
"""Options whose two arguments are the name and the value of a parameter."""

_RENAMED = {
    "hwloc_base_binding_policy": "hwloc_default_binding_policy",
    "oob_tcp_if_exclude": "prte_if_exclude",
    "oob_tcp_if_include": "prte_if_include",
    "rmaps_base_mapping_policy": "rmaps_default_mapping_policy",
    "rmaps_base_ranking_policy": "rmaps_default_ranking_policy",
}
_RENAMED_PREFIXES = {"orte_": "prte_", "plm_rsh_": "plm_ssh_"}
_BTL_RENAMED = ("btl_vader_", "btl_sm_")


_SAME = frozenset(("-bind-to", "-map-by", "-membind"))
"""Options with one value that Open MPI and hydra share."""
_DEFAULTS = frozenset((("-bind-to", "none"), ("-map-by", "slot")))
"""Options that request hydra's default behaviour. hydra does not support ``slot``."""
_DROPPED_BY_MPICH = frozenset(
    ("-verbose", "-v", "-q", "-quiet", "-allow-run-as-root", "-oversubscribe", "-tag-output")
)
"""Options of Open MPI that hydra neither has nor needs."""
_OF_OPEN_MPI = frozenset(("-mca", "-gmca", "-prtemca", "-pmixmca"))


def parse(text: str) -> list[str]:
    """Split the options like a shell.

    ``--NCCL_DEBUG LEVEL`` is SageMaker's notation for ``-x NCCL_DEBUG=LEVEL``.

    Raises:
        InvalidJob: a quote is not closed, or an option sets hosts or numbers of ranks.
    """
    try:
        arguments = shlex.split(text)
    except ValueError as error:
        raise InvalidJob(
            f"custom_mpi_options: cannot be split like a shell command: {error}",
            hint="Close every quote, or escape it with a backslash.",
        ) from None
    options: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        if _plain(argument.partition("=")[0]) in JOBS_OWN:
            raise InvalidJob(
                f"custom_mpi_options: {argument} is not allowed: the job determines hosts and ranks",
                hint="Set instance_count and processes_per_host instead.",
            )
        name, _, level = argument.partition("=")
        if name == "--NCCL_DEBUG":
            options += ["-x", f"NCCL_DEBUG={level or next(rest, '')}"]
        else:
            options.append(argument)
    return options


def for_version(options: list[str], version: int) -> list[str]:
    """Translate the options for mpirun of Open MPI ``version``."""
    if version < 5:
        return options
    translated: list[str] = []
    rest = iter(options)
    for argument in rest:
        plain = _plain(argument)
        if plain in _PARAMETERS:
            translated += _parameter(argument, next(rest, ""), next(rest, ""))
        elif argument in ("-x", "--x"):
            translated += [argument, next(rest, "")]
        elif plain in _DROPPED:
            continue
        elif plain == argument and len(argument) > 2 and argument.startswith("-") and argument not in _SHORT:
            translated.append(f"-{argument}")
        else:
            translated.append(argument)
    return translated


def for_mpich(options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Translate options of Open MPI to options of hydra. Raises InvalidJob.

    >>> for_mpich(["-x", "A=1", "--bind-to", "core", "-map-by", "slot"], {})
    ['-genv', 'A', '1', '-bind-to', 'core']
    """
    translated: list[str] = []
    rest = iter(options)
    for option in rest:
        plain = _plain(option)
        if plain == "-x":
            name, equals, value = next(rest, "").partition("=")
            translated += ["-genv", name, value if equals else environment.get(name, "")]
        elif plain in _SAME:
            value = next(rest, "")
            translated += [] if (plain, value) in _DEFAULTS else [plain, value]
        elif plain in _OF_OPEN_MPI:
            raise InvalidJob(
                f"custom_mpi_options: {option} is an option of Open MPI, and the mpirun of this job is MPICH's",
                hint="Leave it out, or put the mpirun of Open MPI first on the PATH.",
            )
        elif plain not in _DROPPED_BY_MPICH:
            translated.append(plain)
    return translated


def _plain(argument: str) -> str:
    return argument[1:] if argument.startswith("--") else argument


def _parameter(option: str, name: str, value: str) -> list[str]:
    """One MCA parameter, with its name in Open MPI 5."""
    renamed = _RENAMED.get(name, name)
    for old, new in _RENAMED_PREFIXES.items():
        if renamed.startswith(old):
            renamed = new + renamed[len(old) :]
    if renamed != name:
        return ["--prtemca", renamed, value]
    if name.startswith(_BTL_RENAMED[0]):
        name = _BTL_RENAMED[1] + name[len(_BTL_RENAMED[0]) :]
    if name == "btl":
        sign = "^" if value.startswith("^") else ""
        value = sign + ",".join("sm" if item == "vader" else item for item in value[len(sign) :].split(","))
    return [option, name, value]
