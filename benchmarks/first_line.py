"""How long a job takes to reach the first line of the user's script, against torchx, submitit and torchrun.

    python benchmarks/first_line.py [--runs 11]

Wall-clock seconds from just before the command is started to the first statement of the script, which notes
the time; of two ranks, the later one counts. The script imports no framework, so that only the launcher is
measured. The commands take turns, and each is waited for. Prints rows of a Markdown table.
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
"""A command line as one types it, and the interpreter of the environment whose commands it means."""


def one_rank() -> tuple[Commands, Commands]:
    """Ours, and what they are compared with."""
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
    """Seconds until the last of ``ranks`` ranks is at its first line; returns when the command has ended.

    Raises:
        RuntimeError: it failed, or not every rank came that far; with what it printed.
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
    """Print a row for each pair."""
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
