"""``cloudtrain run`` with other machines in its list of hosts: a job of the platform ``hosts``, in the foreground."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import click

from cloudtrain.cli._errors import INTERRUPTED, Ended
from cloudtrain.errors import InvalidJob

if TYPE_CHECKING:
    from cloudtrain.cli._run_options import RunOptions
    from cloudtrain.cli._run_program import RankProgram
    from cloudtrain.platforms.hosts.host_list import NamedHost
    from cloudtrain.submission import Submission


def run_on(hosts: list[NamedHost], options: RunOptions, program: RankProgram) -> NoReturn:
    """Run the program on ``hosts``, print its output, and exit with its exit code. Ctrl-C ends all ranks.

    Raises InvalidJob if it cannot run there, and PlatformError if a host cannot take part.
    """
    from cloudtrain.submission import prepare

    if options.output:
        raise InvalidJob(
            "--output-filename: ranks of other machines do not write here",
            hint="Leave it out: the output of each rank is in the job's folder, which the first line names.",
        )
    submission = prepare(job_fields(hosts, options, program), defaults={})
    if options.verbose:
        click.echo(f"Starting {shlex.join([program.python, *program.options, *program.arguments])}", err=True)
    _follow(submission, quiet=options.quiet)


def job_fields(hosts: list[NamedHost], options: RunOptions, program: RankProgram) -> dict[str, Any]:
    """The fields of the job. Raises InvalidJob."""
    script, *arguments = program.arguments[1:] if program.arguments[0] == "--" else program.arguments
    if script == "-m":
        raise InvalidJob("-m: other machines do not have this module", hint="Name the script that starts it.")
    if program.options:
        raise InvalidJob(
            f"python {program.options[0]}: other machines start their own Python",
            hint="Leave the option out.",
        )
    per_host = 1 if options.one_per_host else options.per_turn or options.per_host
    oversubscribe = options.oversubscribe and not options.per_turn
    hosts = spread(hosts, options.ranks, per_host, oversubscribe=oversubscribe)
    named = options.program[0]
    own: dict[str, Any] = {"hosts": [str(host) for host in hosts], "ssh": shlex.join(options.ssh_command())}
    if os.path.dirname(named) and program.arguments[0] != "--":
        own["python"] = os.path.abspath(named)
    kind: dict[str, Any] = {"processes": {}}
    if options.mpi:
        kind = {"mpi": {"custom_mpi_options": shlex.join(options.mpi_options)}}
    return {
        "platform": "hosts",
        "platform_options": own,
        "entry_point": os.path.relpath(script),
        "arguments": arguments,
        "environment": options.variables,
        "distribution": kind,
    }


def spread(
    hosts: list[NamedHost], ranks: int, per_host: int, *, oversubscribe: bool = False
) -> list[NamedHost]:
    """The first ``hosts`` that have ``ranks`` slots together, each with the slots that are used.

    Args:
        ranks: 0 for all slots.
        per_host: the ranks on each host, regardless of its slots; 0 for as many as it has slots.
        oversubscribe: whether hosts may have more ranks than slots. All then have the same number.

    Raises InvalidJob if there are too few slots, or if the hosts would have different numbers of ranks.
    """
    if per_host:
        hosts = [replace(host, slots=per_host) for host in hosts]
    elif ranks and not all(host.slots for host in hosts):
        each = -(-ranks // len(hosts))
        hosts = [replace(host, slots=host.slots or each) for host in hosts]
    if not ranks:
        return hosts
    if oversubscribe and ranks > sum(host.slots or 0 for host in hosts):
        hosts = [replace(host, slots=-(-ranks // len(hosts))) for host in hosts]
    used: list[NamedHost] = []
    left = ranks
    for host in hosts:
        if left:
            used.append(replace(host, slots=min(left, host.slots or 0)))
            left -= used[-1].slots or 0
    if left:
        raise InvalidJob(
            f"-np {ranks} is more than the {ranks - left} slots of the hosts",
            hint="Name more hosts, give them more slots (server1:8), or add --oversubscribe.",
        )
    if len({host.slots for host in used}) > 1:
        shown = ", ".join(f"{host.slots} on {host.name}" for host in used)
        fitting = (used[0].slots or 1) * len(used)
        raise InvalidJob(
            f"-np {ranks} would be {shown}, but every host runs the same number of ranks",
            hint=f"Use -np {fitting}, or give the hosts other slots.",
        )
    return used


def _follow(submission: Submission, *, quiet: bool) -> NoReturn:
    """Start the job and print its output. Imports come first, because once it has started, every signal must end it."""
    from cloudtrain.cli._view import finish, print_line

    ended: BaseException | None = None
    job = submission.start()
    while True:
        try:
            if not quiet:
                quiet = True
                click.echo(f"Job {job.name} in {job.describe().place}", err=True)
            for line in job.follow():
                print_line(line)
            break
        except (KeyboardInterrupt, Ended) as error:
            if ended:  # the second time
                click.echo(
                    f"The hosts may still end their ranks. See: cloudtrain describe {job.name}", err=True
                )
                sys.exit(INTERRUPTED)
            ended = error
            job.stop()
            click.echo("Ending all ranks...", err=True)
    code = finish(job)
    if isinstance(ended, Ended):
        raise ended
    sys.exit(INTERRUPTED if ended else code)
