"""The commands of the agent launcher: their placeholders, and the presets for launchers of other projects.

A command is split like a shell command once. Then placeholders are replaced in each argument, so that a value is never
split or interpreted.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from cloudtrain._system.patterns import pattern
from cloudtrain.errors import nearest

PROGRAM = "program"
"""The placeholder for the program that the agent starts as each rank. It becomes several arguments."""

PLACEHOLDERS = {
    "hosts": "the number of hosts",
    "host_rank": "the number of this host: 0 for the first one",
    "host": "the name of this host",
    "host_names": "the names of all hosts, with commas between them",
    "processes_per_host": "the number of ranks on each host",
    "world_size": "the number of ranks",
    "master_addr": "the address of the first host",
    "master_port": "a port on the first host, for the rendezvous of the ranks",
    "agent_port": "another one, for a server of the agent",
    "hostfile": "the path of the hostfile: a line `host slots=ranks` for each host",
    "python": "the interpreter that has the job's requirements",
    PROGRAM: "the program that the agent starts as each rank: a Python file and its argument",
}
"""The placeholders of a command, and their meanings."""

_ACCELERATE = (
    "accelerate launch --num_machines {hosts} --machine_rank {host_rank} --main_process_ip {master_addr}"
    " --main_process_port {master_port} --num_processes {world_size}"
)
_DEEPSPEED = (
    "deepspeed --hostfile {hostfile} --no_ssh --node_rank {host_rank} --master_addr {master_addr}"
    " --master_port {master_port}"
)
_RAY = "ray symmetric-run --address {master_addr}:{agent_port} --min-nodes {hosts}"

PRESETS = {"accelerate": _ACCELERATE, "deepspeed": _DEEPSPEED, "ray": _RAY}
"""The commands of the presets. The options of the job follow, and then the program."""

_MODES = (
    "--cpu",
    "--multi_gpu",
    "--tpu",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_megatron_lm",
    "--config_file",
)
"""Options of accelerate that choose how it starts ranks. Without one of them, it starts one on each host."""

_PLACEHOLDER = pattern(r"(?P<open>\{+)(?P<name>[A-Za-z_]\w*)(?P<close>\}+)")


def preset_command(preset: str, options: str) -> str:
    """The command of a preset.

    Args:
        options: additional options of the preset's program, in shell syntax.

    Raises:
        ValueError: the options cannot be split like a shell command.
    """
    given = shlex.split(options)
    command = PRESETS[preset]
    if preset == "accelerate" and not any(
        part.partition("=")[0].replace("-", "_") in _mode_names() for part in given
    ):
        command += " --multi_gpu"
    if options:
        command += f" {options}"
    return f"{command} -- {{python}} {{program}}" if preset == "ray" else command


def _mode_names() -> set[str]:
    return {name.replace("-", "_") for name in _MODES}


def parse_command(command: str) -> list[str]:
    """The arguments of a command, with ``{program}`` at the end if it is nowhere else.

    >>> parse_command("torchrun --nnodes={hosts}")
    ['torchrun', '--nnodes={hosts}', '{program}']

    Raises:
        ValueError: it cannot be split like a shell command, is empty, or has an unknown placeholder.
    """
    line = shlex.split(command)
    if not line:
        raise ValueError("the command is empty")
    for part in line:
        for name in _placeholders(part):
            if name not in PLACEHOLDERS:
                raise ValueError(f"there is no placeholder {{{name}}}. {nearest(name, PLACEHOLDERS)}")
            if name == PROGRAM and part != f"{{{PROGRAM}}}":
                raise ValueError(f"{{{PROGRAM}}} becomes several arguments, but is a part of {part!r}")
    return line if f"{{{PROGRAM}}}" in line else [*line, f"{{{PROGRAM}}}"]


def fill(line: Sequence[str], values: Mapping[str, object], program: Sequence[str]) -> list[str]:
    """The result of `parse_command` with the placeholders replaced by values. ``{{name}}`` becomes ``{name}``."""

    def replace(match: re.Match[str]) -> str:
        opened, closed = match["open"], match["close"]
        if min(len(opened), len(closed)) > 1:
            return f"{opened[1:]}{match['name']}{closed[1:]}"
        return f"{opened[1:]}{values[match['name']]}{closed[1:]}"

    filled: list[str] = []
    for part in line:
        filled += program if part == f"{{{PROGRAM}}}" else [_PLACEHOLDER.sub(replace, part)]
    return filled


def _placeholders(part: str) -> list[str]:
    return [
        match["name"]
        for match in _PLACEHOLDER.finditer(part)
        if min(len(match["open"]), len(match["close"])) == 1
    ]
