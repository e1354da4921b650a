"""Runs the ranks of ``cloudtrain run``. Imports little, because imports delay the first output of the ranks."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._system.descriptors import check_open_files
from cloudtrain._system.processes import RUNS_JOBS
from cloudtrain._system.signals import SIGHUP, block
from cloudtrain.cli._output import notify
from cloudtrain.cli._run_options import RunOptions, parse
from cloudtrain.errors import InvalidJob, PlatformError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from cloudtrain.platforms.hosts.host_list import NamedHost

_OF_LOGIN = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "TERM")
"""The variables of the shell that ranks have even with ``-genvnone``, as well as ``LC_*``."""


def run(arguments: Sequence[str]) -> bool:
    """Run the program; exits with its exit status unless that is 0. False if the flags ask for information only.

    Raises CloudtrainError.
    """
    options = parse(arguments)
    if options.help or options.version or options.check_build:
        return False
    _run(options)
    return True


def _run(options: RunOptions) -> None:
    import shlex

    if not RUNS_JOBS:
        raise PlatformError("ranks run on Linux and macOS", hint="Use Linux, or WSL on Windows.")
    if not options.program:
        raise InvalidJob(
            "there is no program to run", hint="Example: cloudtrain run -np 4 python train.py --epochs 5"
        )
    try:
        check_open_files()
    except OSError as error:
        raise PlatformError(f"the ranks cannot be started: {error}") from None
    hosts = _hosts(options)
    if (options.send or options.mpi) and not all(host.is_this_machine for host in hosts):
        _run_elsewhere(hosts, options)
        return
    placed = ranks_of_hosts(options, hosts)
    ranks = sum(map(len, placed.values())) if placed else rank_count(options, hosts)
    output = os.path.abspath(options.output) if options.output else ""
    if options.folder and not options.others:
        _make_usable("--wdir", options.folder, os.chdir)
        options.folder = ""  # it is the current one now
    if output:
        _make_usable("--output-filename", output, lambda folder: os.makedirs(folder, exist_ok=True))
    order: dict[str, Any] = {
        "ranks": ranks,
        "programs": [
            _program(each, each.ranks if options.others else ranks) for each in (options, *options.others)
        ],
        "mpi": options.mpi,
        "mpi_options": shlex.join(options.mpi_options),
        "output": output,
        "verbose": options.verbose,
    }
    if placed:
        order["hosts"] = [
            {
                "name": host.name,
                "destination": "" if host.is_this_machine else host.destination,
                "ranks": placed[host.name],
            }
            for host in hosts
            if host.name in placed
        ]
        order["ssh"] = options.ssh_command()
    for note in () if options.quiet else options.notes:
        notify("Note", note)
    sys.stdout.flush()
    # until the module below has installed its handlers
    block((SIGHUP, signal.SIGINT, signal.SIGTERM))
    if options.bare:
        for name in [*os.environ]:
            if name not in _OF_LOGIN and not name.startswith("LC_"):
                del os.environ[name]
    os.environ.update(options.variables)
    foreground = import_module("cloudtrain.runtime.foreground.run")  # its imports do not exist on Windows
    sys.exit(foreground.main(order))


def _program(options: RunOptions, ranks: int) -> dict[str, Any]:
    """The fields of `cloudtrain.runtime.foreground.plan.Program`. Raises InvalidJob."""
    from cloudtrain.cli._run_program import library_for, rank_program

    here = os.getcwd()
    if options.folder:
        _make_usable("--wdir", options.folder, os.chdir)
    program = rank_program(options.program)
    folder = os.getcwd()
    os.chdir(here)
    return {
        "ranks": ranks,
        "python": program.python,
        "options": program.options,
        "arguments": program.arguments,
        "library": library_for(program.python),
        "variables": options.own_variables,
        "folder": "" if folder == here else folder,
    }


def _run_elsewhere(hosts: list[NamedHost], options: RunOptions) -> None:
    from cloudtrain.cli._run_hosts import run_on
    from cloudtrain.cli._run_program import rank_program

    if options.others or options.bare:
        what = "several programs" if options.others else "-genvnone and -genvlist"
        raise InvalidJob(
            f"{what}: not for ranks that a job on other machines starts",
            hint="Leave out --send and --mpi, and use a folder that all hosts share.",
        )
    if options.folder:
        _make_usable("--wdir", options.folder, os.chdir)
    run_on(hosts, options, rank_program(options.program))


def _make_usable(flag: str, folder: str, use: Callable[[str], object]) -> None:
    try:
        use(folder)
    except OSError as error:
        raise InvalidJob(f"{flag} {folder}: {error.strerror}", hint="Name another folder.") from None


def _hosts(options: RunOptions) -> list[NamedHost]:
    """The hosts that the flags name; none if they name none. Raises InvalidJob."""
    if not options.hosts and not options.hostfile:
        return []
    from cloudtrain.platforms.hosts.host_list import parse_hostfile, parse_hosts

    if options.hosts and options.hostfile:
        raise InvalidJob("-H and --hostfile both name the hosts", hint="Leave one of them out.")
    if options.hosts:
        hosts = parse_hosts(options.hosts, "-H")
    else:
        try:
            text = Path(options.hostfile).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InvalidJob(
                f"--hostfile {options.hostfile}: {error.strerror}",
                hint="Name a file with a line for each host: server1 slots=4",
            ) from None
        hosts = parse_hostfile(text, options.hostfile)
    return hosts


def world_size(options: RunOptions) -> int:
    """The number of ranks; 0 if it is not given."""
    return options.ranks + sum(other.ranks for other in options.others)


def ranks_of_hosts(options: RunOptions, hosts: list[NamedHost]) -> dict[str, list[int]]:
    """The ranks of each host that has any; empty if all hosts are this machine.

    Hosts are filled one after another, in their order; with ``-ppn``, in turn. Raises InvalidJob.
    """
    if all(host.is_this_machine for host in hosts):
        return {}
    ranks = world_size(options)
    if options.per_turn:
        turns: dict[str, list[int]] = {}
        for rank in range(ranks or options.per_turn * len(hosts)):
            turns.setdefault(hosts[rank // options.per_turn % len(hosts)].name, []).append(rank)
        return turns
    per_host = 1 if options.one_per_host else options.per_host
    each = 1 if all(host.slots for host in hosts) else -(-(ranks or 1) // len(hosts))
    slots = {host.name: per_host or host.slots or each for host in hosts}
    left = ranks or sum(slots.values())
    if left > sum(slots.values()) and not options.oversubscribe:
        raise InvalidJob(
            f"-np {left} is more than the {sum(slots.values())} slots of the hosts",
            hint="Name more slots, as in -H server1:4,server2:4, or add --oversubscribe.",
        )
    counts = dict.fromkeys(slots, 0)
    while left:
        for name, limit in slots.items():
            taken = min(limit, left)
            counts[name] += taken
            left -= taken
    numbers = iter(range(sum(counts.values())))
    return {name: list(islice(numbers, count)) for name, count in counts.items() if count}


def rank_count(options: RunOptions, hosts: list[NamedHost]) -> int:
    """The number of ranks: as given, else by the slots of the hosts, else by the GPUs. Raises InvalidJob."""
    given = world_size(options)
    if options.per_turn:
        return given or options.per_turn * (len(hosts) or 1)
    per_host = 1 if options.one_per_host else options.per_host
    slots = sum(host.slots or 0 for host in hosts)
    if hosts and not all(host.slots for host in hosts):
        slots = 0  # not limited
    if per_host:
        ranks = given or per_host
        if ranks > per_host:
            raise InvalidJob(
                f"-np {ranks} is more than {per_host} on this host", hint="Leave one of the flags out."
            )
    else:
        ranks = given or slots
    if not ranks:
        from cloudtrain.contract import gpu_count

        ranks = gpu_count()
    if not ranks:
        raise InvalidJob(
            "the number of ranks is not given, and this machine has no GPUs", hint="Say how many: -np 4"
        )
    if slots and ranks > slots and not options.oversubscribe:
        raise InvalidJob(
            f"-np {ranks} is more than the {slots} slots of the hosts",
            hint=f"Write -H localhost:{ranks}, or add --oversubscribe.",
        )
    return ranks
