"""Time to the first line of the user's script, against torchx, submitit and torchrun.

    python benchmarks/first_line.py [--runs 11]

Measures wall-clock seconds from just before the start of the command to the first statement of the script, which
records the time; with two ranks, the later one counts. The script imports no framework, so only the launcher is
measured. The commands take turns and run to their end. Prints rows of a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

import _peers
from _common import header, in_turns, row

SCRIPT = """\
import time; began = time.time()
import os
with open(os.path.join(os.environ["FIRST_LINE"], os.environ.get("RANK", "0")), "w") as file:
    file.write(repr(began))
"""

# submitit takes a function, not a script
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

Commands = dict[str, Path]
"""Command lines as a user types them, and the interpreter of the environment that they belong to."""


def one_rank() -> tuple[Commands, Commands]:
    """The commands of cloudtrain, and those to compare them with."""
    ours = _peers.cloudtrain()
    return {"cloudtrain submit train.py": ours}, {
        "torchx run -s local_cwd utils.python --script train.py": _peers.torchx(),
        "python train_submitit.py 1": _peers.submitit(),
        "python train.py": ours,
    }


def two_ranks() -> tuple[Commands, Commands]:
    ours = _peers.cloudtrain()
    submit = "cloudtrain submit train.py --processes-per-host 2"
    return {submit: ours, f"{submit} --torchrun": ours}, {
        "torchx run -s local_cwd dist.ddp -j 1x2 --script train.py": _peers.torchx(),
        "python train_submitit.py 2": _peers.submitit(),
        "torchrun --nproc-per-node 2 train.py": ours,
    }


def first_line(command: str, python: Path, folder: Path, ranks: int) -> float:
    """Run the command to its end; returns the seconds until the last of ``ranks`` ranks reached its first line.

    Raises:
        RuntimeError: the command failed, or a rank did not reach its script; with the output.
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


def compare(ours: Commands, peers: Commands, ranks: int, runs: int) -> None:
    """Print a row for each pair of commands."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "train.py").write_text(SCRIPT)
        (folder / "train_submitit.py").write_text(SUBMITIT_SCRIPT)
        turns = {
            command: partial(first_line, command, python, folder, ranks)
            for command, python in {**ours, **peers}.items()
        }
        seconds = in_turns(turns, runs)
    for command in ours:
        for peer in peers:
            print(row(f"`{command}`", seconds[command], f"`{peer}`", seconds[peer]), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs
    print(header())
    compare(*one_rank(), ranks=1, runs=runs)
    compare(*two_ranks(), ranks=2, runs=runs)


if __name__ == "__main__":
    main()
