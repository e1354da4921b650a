"""The cost of starting: imports and `--help`, the first line of a job's script, and two ranks in the foreground.

    python benchmarks/start.py [imports] [first_line] [run] [--runs 11] [--quick] [--json]

- ``imports``: CPU seconds, user and system, of one process per command: they depend far less on other load than
  wall-clock time. "Above Python" is the difference from the median of ``python -c pass`` in the same environment.
- ``first_line``: wall-clock seconds from just before the start of the command to the first statement of the script,
  which imports no framework; with two ranks, the later one counts. Commands run to their end. submitit submits a
  function.
- ``run``: wall-clock seconds of ``cloudtrain run -np 2`` and of ``mpirun -np 2``, of a script that does nothing.

The commands take turns.
"""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from _common import OURS, PeerMissing, Report, cpu_seconds, in_turns, run_parts
from _peers import SAGEMAKER_2, SAGEMAKER_3, SUBMITIT, TORCHX, cloudtrain, peer

ISOLATED = ("-I", "-c")
"""Isolated: otherwise, Python would import the working tree from the current folder."""
ESTIMATOR, HELP = "from cloudtrain import Estimator", "cloudtrain --help"
IMPORTS = {
    "import cloudtrain": [
        (OURS, "import cloudtrain"),
        (TORCHX, "import torchx"),
        (SAGEMAKER_2, "import sagemaker"),
        (SAGEMAKER_3, "import sagemaker"),  # a namespace package, which loads nothing
    ],
    ESTIMATOR: [
        (OURS, ESTIMATOR),
        (TORCHX, "from torchx.specs import AppDef"),
        (TORCHX, "from torchx.runner import get_runner"),
        (SUBMITIT, "import submitit"),
        (SAGEMAKER_2, "from sagemaker.estimator import Estimator"),
        (SAGEMAKER_3, "from sagemaker.train import ModelTrainer"),
    ],
    HELP: [(OURS, HELP), (TORCHX, "torchx --help")],
}
"""By command of cloudtrain: each contestant's."""

SCRIPT = """\
import time; began = time.time()
import os
with open(os.path.join(os.environ["FIRST_LINE"], os.environ.get("RANK", "0")), "w") as file:
    file.write(repr(began))
"""
SUBMITIT_SCRIPT = """\
import os, sys, time
import submitit

def train():
    began = time.time()
    rank = str(submitit.JobEnvironment().global_rank)
    with open(os.path.join(os.environ["FIRST_LINE"], rank), "w") as file:
        file.write(repr(began))

executor = submitit.AutoExecutor(folder="submitit", cluster="local")
executor.update_parameters(tasks_per_node=int(sys.argv[1]))
executor.submit(train).results()
"""
SUBMIT_2 = "cloudtrain submit train.py --processes-per-host 2"
FIRST_LINES = {
    1: {
        "cloudtrain submit train.py": OURS,
        "torchx run -s local_cwd utils.python --script train.py": TORCHX,
        "python train_submitit.py 1": SUBMITIT,
        "python train.py": OURS,
    },
    2: {
        SUBMIT_2: OURS,
        "torchx run -s local_cwd dist.ddp -j 1x2 --script train.py": TORCHX,
        "python train_submitit.py 2": SUBMITIT,
        f"{SUBMIT_2} --torchrun": OURS,
        "torchrun --nproc-per-node 2 train.py": OURS,
    },
}
"""By number of ranks: the commands, as a user types them, and whose environment they belong to."""
AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
           "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")  # fmt: skip


def python_of(who: str) -> Path:
    return cloudtrain("torch") if who == OURS else peer(who)


def imports(report: Report, given: argparse.Namespace) -> None:
    commands: dict[tuple[str, str], tuple[str, ...]] = {}
    for who, shown in [each for contestants in IMPORTS.values() for each in contestants]:
        with report.optional(who):
            python = python_of(who)
            isolated = (str(python), *ISOLATED)
            commands[who, "pass"] = (*isolated, "pass")
            script, _, flag = shown.partition(" --")
            commands[who, shown] = (
                (str(python.with_name(script)), f"--{flag}") if flag else (*isolated, shown)
            )
    seconds = in_turns({key: partial(cpu_seconds, line) for key, line in commands.items()}, given.runs)
    for what, contestants in IMPORTS.items():
        for who, shown in contestants:
            if (who, shown) in seconds:
                report.add(f"{what}: CPU", who, seconds[who, shown], note=f"`{shown}`")
        for who, shown in contestants:
            if (who, shown) in seconds:
                bare = statistics.median(seconds[who, "pass"])
                report.add(
                    f"{what}: CPU above Python",
                    who,
                    [took - bare for took in seconds[who, shown]],
                    note=f"`{shown}`",
                )


def first_line(report: Report, given: argparse.Namespace) -> None:
    for ranks, commands in FIRST_LINES.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            (folder / "train.py").write_text(SCRIPT)
            (folder / "train_submitit.py").write_text(SUBMITIT_SCRIPT)
            turns = {}
            for command, who in commands.items():
                with report.optional(who):
                    if given.quick and "torchrun" in command:
                        continue
                    python = python_of(who)
                    turns[command] = partial(until_first_line, command, python, folder, ranks)
            seconds = in_turns(turns, given.runs)
        what = f"first line, {'two ranks' if ranks == 2 else 'one rank'}"
        for command, took in seconds.items():
            who = f"`{command}`" if commands[command] == OURS else commands[command]
            report.add(what, OURS if command == next(iter(commands)) else who, took, note=f"`{command}`")


def until_first_line(command: str, python: Path, folder: Path, ranks: int) -> float:
    """Run the command to its end; returns the seconds until the last of ``ranks`` ranks reached its first line.

    Raises:
        RuntimeError: the command failed, or a rank did not reach its script. The message contains the output.
    """
    with tempfile.TemporaryDirectory(dir=folder) as marks:
        environ = {
            **os.environ,
            "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]]),
            "CLOUDTRAIN_HOME": str(folder / "state"),
            "FIRST_LINE": marks,
        }
        start = time.time()
        done = subprocess.run(shlex.split(command), cwd=folder, env=environ, capture_output=True, text=True)
        began = [float(mark.read_text()) for mark in Path(marks).iterdir()]
    if done.returncode or len(began) != ranks:
        raise RuntimeError(f"{command}: {len(began)} of {ranks} ranks began\n{done.stdout}{done.stderr}")
    return max(began) - start


def run(report: Report, given: argparse.Namespace) -> None:
    """Run the same script with the same interpreter. The mpirun next to this interpreter is used, else that on the
    PATH."""
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environ = {**os.environ, "PATH": path, **dict.fromkeys(AS_ROOT, "1")}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text("import os\n")
        python = (sys.executable, "train.py")
        commands = {OURS: (str(programs / "cloudtrain"), "run", "-np", "2", *python)}
        with report.optional("mpirun"):
            mpirun = shutil.which("mpirun", path=path)
            if mpirun is None:
                raise PeerMissing("there is no mpirun")
            commands["mpirun"] = (mpirun, "-np", "2", "--oversubscribe", *python)
        turns = {who: partial(wall_seconds, command, folder, environ) for who, command in commands.items()}
        report.add_all("two ranks in the foreground", in_turns(turns, given.runs))


PLAN = (
    "--platform", "sagemaker", "--instance-type", "ml.p4d.24xlarge", "--steps", "100000",
    "--step-seconds", "0.42", "--parameters", "350e6", "--gpus", "8,16,64", "--deadline", "24h",
)  # fmt: skip


def plan(report: Report, given: argparse.Namespace) -> None:
    """Measure until the command ends, without a network if this user may create a network namespace."""
    environ = {**os.environ, "AWS_DEFAULT_REGION": "us-east-1"}
    offline = ("unshare", "-rn")
    if not shutil.which("unshare") or subprocess.run((*offline, "true"), capture_output=True).returncode:
        offline = ()
    with tempfile.TemporaryDirectory() as folder:
        (script := Path(folder, "train.py")).touch()
        command = (*offline, str(Path(sys.executable).with_name("cloudtrain")), "plan", str(script), *PLAN)
        turn = {OURS: partial(wall_seconds, command, folder, environ)}
        report.add_all("`cloudtrain plan` without a network", in_turns(turn, given.runs))
        used = {OURS: partial(cpu_seconds, command, environ)}
        report.add_all("`cloudtrain plan` without a network: CPU", in_turns(used, given.runs))


def wall_seconds(command: tuple[str, ...], folder: str, environ: dict[str, str]) -> float:
    """The wall-clock seconds of a command. Raises CalledProcessError if it fails."""
    began = time.monotonic()
    subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
    )
    return time.monotonic() - began


if __name__ == "__main__":
    run_parts(__doc__, {"imports": imports, "first_line": first_line, "run": run, "plan": plan}, runs=11)
