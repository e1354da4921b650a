"""Parses the command line of ``cloudtrain run``: flags up to the program, and the program with its arguments."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import field

from cloudtrain._dataclass import dataclass
from cloudtrain.cli._run_flags import BY_NAME, REAL_HOROVOD, Effect, Flag, flags
from cloudtrain.errors import InvalidJob, nearest

COUNTS = ("ranks", "per_host", "per_turn", "ssh_port")
"""Fields that are positive whole numbers."""
MEGABYTE = 1 << 20
OF_ONE_PROGRAM = ("ranks", "exports", "own_pairs", "folder")
"""The flags that each of several programs may have."""
LAUNCHERS = ("torchrun", "horovodrun", "mpirun", "mpiexec", "srun", "accelerate", "deepspeed")
NO_MPI_NEEDED = {"bind-to": "none", "map-by": "slot", "rank-by": "slot"}
"""The values of mpirun's flags that apply without mpirun as well."""


@dataclass
class RunOptions:
    """The content of the flags. Fields have the names that `cloudtrain.cli._run_flags` gives as targets."""

    ranks: int = 0
    """0: not given."""
    per_host: int = 0
    per_turn: int = 0
    """As ``per_host``, but hosts have their turn until all ranks are placed."""
    one_per_host: bool = False
    hosts: str = ""
    hostfile: str = ""
    oversubscribe: bool = False
    ssh_port: int = 0
    ssh_identity: str = ""
    folder: str = ""
    output: str = ""
    verbose: bool = False
    quiet: bool = False
    send: bool = False
    mpi: bool = False
    mpi_options: list[str] = field(default_factory=list)
    check_build: bool = False
    version: bool = False
    help: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    """For the ranks, in addition to those of the shell."""
    own_variables: dict[str, str] = field(default_factory=dict)
    """With several programs: for the ranks of this one."""
    bare: bool = False
    """Whether the ranks have none of the shell's variables but those of a login."""
    notes: list[str] = field(default_factory=list)
    """One line for each flag without effect."""
    program: list[str] = field(default_factory=list)
    others: list[RunOptions] = field(default_factory=list)
    """The programs after the first one, with what is their own."""
    ssh: str = "ssh"
    """As for mpirun: ``-mca plm_rsh_agent``, with the options of ``-mca plm_rsh_args``."""
    ssh_options: str = ""

    def ssh_command(self) -> list[str]:
        """The command that connects to a host. Raises InvalidJob."""
        try:
            command = [*shlex.split(self.ssh), *shlex.split(self.ssh_options)]
        except ValueError as error:
            raise InvalidJob(f"-mca plm_rsh_agent: {error}", hint="Close every quote.") from None
        if self.ssh_port:
            command += ["-p", str(self.ssh_port)]
        if self.ssh_identity:
            command += ["-i", self.ssh_identity]
        return command


def parse(arguments: Sequence[str]) -> RunOptions:
    """Read flags up to the program. Everything from there on is the program's, unchanged.

    A single colon ends a program, and the flags of the next one follow, unless ``--`` precedes the program.

    Raises InvalidJob.
    """
    options = RunOptions()
    unused: list[tuple[str, list[str]]] = []
    rest = _parse_program(options, list(arguments), unused, options)
    while rest is not None:
        other = RunOptions()
        rest = _parse_program(other, rest, unused, options)
        options.others.append(other)
    if options.others:
        _check_programs(options)
    else:
        options.variables.update(options.own_variables)
        options.own_variables = {}
    _settle_mpi(options, unused)
    return options


def _check_programs(options: RunOptions) -> None:
    programs = [options, *options.others]
    for number, each in enumerate(programs, 1):
        if not each.program:
            raise InvalidJob(
                f"there is no program {number} of {len(programs)}",
                hint="Example: -np 1 python a.py : -np 2 python b.py. Behind --, a colon is an argument.",
            )
        if not each.ranks:
            raise InvalidJob(
                f"{each.program[0]}, one of {len(programs)} programs, has no number of ranks",
                hint="Give each program its own: -np 1 python a.py : -np 2 python b.py",
            )
        if os.path.basename(each.program[0]) in LAUNCHERS:
            raise InvalidJob(
                f"{each.program[0]} starts its own world, and cannot be one of several programs",
                hint="Name the script itself: its ranks have the variables of torchrun, horovodrun and mpirun.",
            )


def _parse_program(
    options: RunOptions, rest: list[str], unused: list[tuple[str, list[str]]], first: RunOptions
) -> list[str] | None:
    """Read the flags of one program, and the program. Returns the arguments after its colon; None if it has none."""
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        if word == "--":
            options.program = rest
            return None
        flag, given, attached = _flag(word)
        is_pair = flag.target in ("pairs", "own_pairs")
        if attached is not None and flag.values != 1 and not (is_pair and "=" in attached):
            raise InvalidJob(
                f"{given} takes {flag.values or 'no'} values, not {word!r}", hint=_usage(given, flag)
            )
        values = [] if attached is None else [attached]
        while len(values) < flag.values and not (is_pair and values and "=" in values[0]):
            if not rest:
                raise InvalidJob(f"{given} needs a value", hint=_usage(given, flag))
            values.append(rest.pop(0))
        if flag.target == "pairs" or options is first:
            _apply(first, flag, given, values, unused)
        elif flag.target in OF_ONE_PROGRAM or flag.effect == Effect.HOLDS:
            _apply(options, flag, given, values, unused)
        else:
            raise InvalidJob(f"{given} is for all programs", hint="Write it in front of the first one.")
    end = rest.index(":") if ":" in rest else len(rest)
    options.program = rest[:end]
    return rest[end + 1 :] if end < len(rest) else None


def _flag(word: str) -> tuple[Flag, str, str | None]:
    """The flag of an argument, its spelling, and a value attached to it: ``--np=4``, ``-np=4``, ``-p2222``."""
    name, equals, value = word.lstrip("-").partition("=")
    spelling = word.partition("=")[0]
    flag = BY_NAME.get(name)
    if flag is not None:
        return flag, spelling, value if equals else None
    letter = BY_NAME.get(word[1:2])
    if not word.startswith("--") and letter is not None and letter.target in COUNTS and word[2:].isdigit():
        return letter, word[:2], word[2:]
    known = [spelled for each in flags() for spelled in each.spellings]
    raise InvalidJob(
        f"run has no flag {spelling}. {_closest(spelling, known)}",
        hint="Flags of the program come after it: cloudtrain run -np 4 python train.py --lr 0.1",
    )


def _closest(spelling: str, known: Sequence[str]) -> str:
    found = nearest(spelling, known)
    return found if found.startswith("Did you mean") else "See cloudtrain run --help."


def _usage(given: str, flag: Flag) -> str:
    return f"Write {given} {flag.metavar}: {flag.text}." if flag.metavar else f"{given}: {flag.text}."


def _apply(
    options: RunOptions, flag: Flag, given: str, values: list[str], unused: list[tuple[str, list[str]]]
) -> None:
    if flag.effect == Effect.OPTION:
        _set(options, flag, given, values)
    elif flag.effect == Effect.VARIABLE:
        _set_variables(options, flag, given, values)
        if flag.text == REAL_HOROVOD:
            options.notes.append(f"{' '.join([given, *values])}: {REAL_HOROVOD}")
    elif flag.effect == Effect.REFUSED:
        raise InvalidJob(f"run does not take {given}", hint=flag.text)
    elif flag.effect == Effect.MPI:
        unused.append((given, values))
    elif flag.effect == Effect.NOTE:
        options.notes.append(f"{' '.join([given, *values])} has no effect: {flag.text}")


def _set(options: RunOptions, flag: Flag, given: str, values: list[str]) -> None:
    target = flag.target
    if target == "exports":
        name, equals, value = values[0].partition("=")
        _export(options, options.own_variables, given, name, value if equals else None)
    elif target in ("pairs", "own_pairs"):
        name, value = values if len(values) == 2 else values[0].split("=", 1)
        variables = options.variables if target == "pairs" else options.own_variables
        _export(options, variables, given, name, value)
    elif target == "only":
        options.bare = True
        for name in values[0].split(","):
            _export(options, options.variables, given, name, None)
    elif target == "mpi_args":
        try:
            options.mpi_options += shlex.split(values[0])
        except ValueError as error:
            raise InvalidJob(f"{given} {values[0]!r}: {error}", hint=_usage(given, flag)) from None
    elif target in COUNTS:
        setattr(options, target, _count(given, flag, values[0]))
    else:
        setattr(options, target, values[0] if values else True)


def _count(given: str, flag: Flag, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= 65535):
        raise InvalidJob(f"{given} {text}: not a whole number from 1 to 65535", hint=_usage(given, flag))
    return int(text)


def _export(options: RunOptions, variables: dict[str, str], given: str, name: str, value: str | None) -> None:
    if not name or "\0" in name + (value or ""):
        raise InvalidJob(f"{given}: {name!r} is not a name of a variable", hint="Write -x NAME=VALUE.")
    if value is None:
        value = os.environ.get(name)
        if value is None:
            options.notes.append(f"{given} {name} has no effect: the variable is not set in this shell")
            return
    variables[name] = value


def _set_variables(options: RunOptions, flag: Flag, given: str, values: list[str]) -> None:
    for target in flag.target.split():
        name, equals, fixed = target.partition("=")
        value = fixed if equals else values[0]
        if name == "HOROVOD_FUSION_THRESHOLD":
            value = str(_number(given, flag, value) * MEGABYTE)
        elif name == "HOROVOD_LOG_LEVEL":
            value = value.lower()
        elif flag.metavar in ("N", "S"):
            value = str(_number(given, flag, value))
        options.variables[name] = value


def _number(given: str, flag: Flag, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidJob(f"{given} {text}: not a whole number", hint=_usage(given, flag))
    return int(text)


def _settle_mpi(options: RunOptions, unused: list[tuple[str, list[str]]]) -> None:
    """Pass mpirun its options, or report that they have no effect."""
    for given, values in unused:
        name = given.lstrip("-")
        if values[:1] in (["plm_rsh_agent"], ["plm_ssh_agent"]):
            options.ssh = values[1]
            continue
        if values[:1] in (["plm_rsh_args"], ["plm_ssh_args"]):
            options.ssh_options = values[1]
            continue
        if options.mpi:
            options.mpi_options += [f"--{name}", *values]
        elif values[:1] != [NO_MPI_NEEDED.get(name)]:
            shown = " ".join([given, *values])
            options.notes.append(
                f"{shown} has no effect: it is for mpirun, which starts the ranks with --mpi"
            )
    if options.mpi_options and not options.mpi:
        shown = shlex.join(options.mpi_options)
        options.notes.append(f"{shown} has no effect: mpirun starts the ranks only with --mpi")
