"""The commands that start the node program on every node of a job: srun, pbsdsh, blaunch, ssh or aprun."""

from __future__ import annotations

import re
import shutil
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cloudtrain.errors import PlatformError
from cloudtrain.runtime.start.allocation import find_allocation

NODE = "cloudtrain.runtime.start.node"
RELAY = "cloudtrain.runtime.batch.relay"
RELAY_NODE = "cloudtrain.runtime.batch.relay_node"

SRUN, PBSDSH, BLAUNCH, SSH, APRUN = "srun", "pbsdsh", "blaunch", "ssh", "aprun"

_SSH = ("-n", "-oBatchMode=yes", "-oConnectTimeout=30")
"""Options of ssh. Host keys are checked as the user has configured. If ssh would prompt, it fails."""


def node_names(environ: Mapping[str, str]) -> list[str]:
    """The nodes of this job, in the scheduler's order. Raises PlatformError if the scheduler does not name them."""
    found = find_allocation(environ)
    if found:
        return [name for name, _ in found.hosts]
    nodes = environ.get("COBALT_PARTNAME", "")
    if re.fullmatch(r"[\d,-]+", nodes):  # numbers of compute nodes of a Cray, whose names derive from them
        return [f"nid{number:05}" for number in _numbers(nodes)]
    if nodes:
        return nodes.split(",")
    raise PlatformError(
        f"the scheduler does not say which nodes the job has on {socket.gethostname()}",
        hint="The batch step looks for PBS_NODEFILE, COBALT_NODEFILE, COBALT_PARTNAME, LSB_MCPU_HOSTS and "
        "SLURM_JOB_NODELIST.",
    )


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def choose(wanted: str, names: Sequence[str], environ: Mapping[str, str]) -> str:
    """The name of the program that starts commands on all nodes; empty if this is the only node.

    Args:
        wanted: ``platform_options.start``, or ``auto``.

    Raises PlatformError if no such program is installed.
    """
    path = environ.get("PATH")
    on_cray = "COBALT_JOBID" in environ and shutil.which(APRUN, path=path) is not None
    if wanted == "auto" and len(names) == 1 and not on_cray:  # on a Cray, this node is a service node
        return ""
    candidates = {
        SRUN: "SLURM_JOB_ID" in environ,
        APRUN: on_cray,
        PBSDSH: "PBS_JOBID" in environ,
        BLAUNCH: "LSB_JOBID" in environ,
        SSH: True,
    }
    for name, fits in candidates.items():
        if (name == wanted or (wanted == "auto" and fits)) and shutil.which(name, path=path):
            return name
    tried = wanted if wanted != "auto" else ", ".join(name for name, fits in candidates.items() if fits)
    raise PlatformError(
        f"nothing on {socket.gethostname()} starts a program on the other nodes: {tried} is not on the PATH",
        hint="Load it (platform_options.modules), or set platform_options.start to another program.",
    )


def command(program: str, names: Sequence[str], runtime: str, folder: str) -> list[str]:
    """The command that runs the node program of a job on all nodes, and forwards its input to all of them."""
    python = [sys.executable, runtime]
    if not program:
        return [*python, NODE, folder, names[0]]
    if program == SRUN:
        return srun_command(SRUN, len(names), [*python, NODE, folder])
    return [*python, RELAY, program, folder, *names]


def srun_command(
    srun: str,
    nodes: int,
    program: Sequence[str],
    *,
    cpus: int | None = None,
    more: Sequence[str] = (),
    epilog: Path | None = None,
    only: Sequence[str] = (),
) -> list[str]:
    """The command that runs ``program`` once on every node, with all resources that the job has there.

    Slurm runs ``epilog`` on each node after the program has ended, even if it was killed.

    Args:
        cpus: the CPUs of each node. Since Slurm 22.05, srun does not take --cpus-per-task from the job.
        only: the nodes, if the step has to survive the loss of some of them.
        more: the user's options. Options override variables such as SLURM_CPU_BIND, which must not change the step.
    """
    return [
        *(srun, f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"),
        *([f"--cpus-per-task={cpus}"] if cpus else []),
        *("--cpu-bind=none", "--mpi=none", "--export=ALL", "--kill-on-bad-exit=0", "--wait=0"),
        *([f"--task-epilog={epilog}"] if epilog else []),
        *((f"--nodelist={','.join(only)}", "--no-kill") if only else ()),
        *more,
        *program,
    ]


def starters(program: str, names: Sequence[str], runtime: str, arguments: Sequence[str]) -> list[list[str]]:
    """The commands that run `relay_node` on all nodes. They do not forward input."""
    inner = [sys.executable, runtime, RELAY_NODE, *arguments]
    if program == SSH:
        return [[SSH, *_SSH, name, "--", *(_quoted(word) for word in (*inner, name))] for name in names]
    if program == BLAUNCH:  # without a shell on the node
        return [[BLAUNCH, "-n", name, "-no-shell", *inner, name] for name in names]
    if program == APRUN:
        return [[APRUN, "-q", "-n", str(len(names)), "-N", "1", *inner]]
    return [[PBSDSH, "--", *inner]]


def _quoted(word: str) -> str:
    """``word``, quoted for the shell on the node."""
    return word if re.fullmatch(r"[\w./:=@%+-]+", word) else "'" + word.replace("'", "'\\''") + "'"


def own_name(names: Sequence[str]) -> str:
    """The name of this node in ``names``. Raises PlatformError if it is not among them."""
    here = socket.gethostname()
    if here in names:
        return here
    short = here.partition(".")[0]
    same = [name for name in names if name.partition(".")[0] == short and not short.isdigit()]
    if len(same) == 1:
        return same[0]
    raise PlatformError(f"this node calls itself {here}, which is none of {', '.join(names)}")
