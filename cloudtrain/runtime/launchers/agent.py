"""Launches with another project's launcher: one command on each host, which starts the ranks of that host.

The command starts `cloudtrain.runtime.rank` as each rank, instead of the script. The runtime can therefore watch the
ranks in the same way as those of any other launcher.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence

from cloudtrain.contract import RankSlot
from cloudtrain.contract.agent import fill, parse_command
from cloudtrain.contract.frameworks import WorldPorts
from cloudtrain.errors import InvalidJob, PlatformError
from cloudtrain.runtime.run_folder import AGENT_COMMAND, hostfile_path

_NEUTRAL_FOLDER = "/"
_FIND = """
import importlib.util
spec = importlib.util.find_spec("ray")
print(*(spec.submodule_search_locations if spec else ()))
"""


def agent_command(
    command: str,
    preset: str,
    slot: RankSlot,
    hosts: Sequence[str],
    master: tuple[str, int],
    ports: WorldPorts,
    *,
    run: str,
    python: str,
    program_folders: Sequence[str],
    rank_program: str,
    environment: Mapping[str, str],
    one_machine: bool,
) -> tuple[str, ...]:
    """The command line of the agent on the host of ``slot``.

    Args:
        command: the command line, with placeholders.
        hosts: the names of the hosts of the world.
        master: address and port of rank 0.
        run: the run folder of this host.
        python: the interpreter that has the job's requirements.
        program_folders: the folders with the console scripts of the packages that ``python`` can import.
        rank_program: the path of `cloudtrain.runtime.rank`.
        one_machine: whether all hosts are on one machine.

    Raises:
        InvalidJob: the command cannot be parsed, or the installed Ray cannot run it.
        PlatformError: the agent's program is not installed.
    """
    values = {
        "hosts": len(hosts),
        "host_rank": slot.host_rank,
        "host": hosts[slot.host_rank],
        "host_names": ",".join(hosts),
        "processes_per_host": slot.local_size,
        "world_size": slot.world_size,
        "master_addr": master[0],
        "master_port": master[1],
        "agent_port": ports.agent,
        "hostfile": hostfile_path(run),
        "python": python,
    }
    try:
        line = parse_command(command)
        if preset == "accelerate" and slot.world_size == 1:
            line = [part for part in line if part != "--multi_gpu"]  # refused for a single process
        program, *rest = fill(line, values, [rank_program, AGENT_COMMAND])
    except ValueError as error:
        raise InvalidJob(f"distribution.agent: {error}", hint="Correct the command in the job.") from None
    if preset == "ray":
        _check_ray(python, environment, shares_machine=one_machine and len(hosts) > 1)
    path = shutil.which(program, path=environment["PATH"])
    if path is None:
        raise PlatformError(
            f"there is no program {program!r} on the host {hosts[slot.host_rank]}, which distribution.agent starts",
            hint=f"Add {preset or 'its package'} to requirements.txt, or use an image that has it.",
        )
    if os.path.dirname(path) in program_folders and _is_python(path):
        return (python, path, *rest)  # its shebang may name an interpreter without the job's requirements
    return (path, *rest)


def _is_python(path: str) -> bool:
    with open(path, "rb") as file:
        start = file.read(300)  # pip writes a shebang of /bin/sh if the path of the interpreter is long
    return start.startswith(b"#!") and b"python" in start


def _check_ray(python: str, environment: Mapping[str, str], *, shares_machine: bool) -> None:
    if shares_machine:
        raise InvalidJob(
            "distribution.agent: Ray runs once on a machine, and the hosts of this job are on one",
            hint="Use instance_count: 1 on this platform. Ray uses all processors and GPUs of the machine then.",
        )
    found = subprocess.run(
        [python, "-c", _FIND], cwd=_NEUTRAL_FOLDER, env=dict(environment), stdout=subprocess.PIPE, check=True
    )
    folder = os.fsdecode(found.stdout).strip()
    if folder and not os.path.exists(f"{folder}/scripts/symmetric_run.py"):
        raise InvalidJob(
            "distribution.agent: the installed Ray has no command symmetric-run",
            hint="Install ray 2.49 or newer.",
        )
