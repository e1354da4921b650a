"""Submit to user code on an idle Slurm: cloudtrain against a hand-written sbatch file, submitit and torchx.

    python benchmarks/slurm_submit.py [--runs 9] [--quick]

Measures wall-clock seconds from the start of the submitting command to the first line of the script on the first of two
nodes. The hand-written file starts one task on each node with srun. The contestants take turns. Prints rows of a
Markdown table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from _common import TEST_FOLDERS, header, in_turns, peer_python, row
from _peers import TORCHX, submitit

sys.path += TEST_FOLDERS

from slurm_cluster import FINAL, Configuration, SlurmCluster

SCRIPT = """import os, sys, time
with open(os.path.join(os.path.dirname(sys.argv[-1]), "began"), "a") as file:
    file.write(f"{time.time()}\\n")
"""

BY_HAND = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun {python} {script} {mark}
"""

SUBMITIT = """import subprocess, sys, submitit
executor = submitit.SlurmExecutor(folder=sys.argv[1])
executor.update_parameters(nodes=2, ntasks_per_node=1, time=5)
executor.submit(submitit.helpers.CommandFunction([sys.executable, sys.argv[2], sys.argv[3]]))
"""

SECONDS = 60
"""How long a job may take to begin."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one run, without submitit and torchx")
    given = parser.parse_args()
    runs = 1 if given.quick else given.runs
    with (
        tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name,
        SlurmCluster(Configuration()) as cluster,
    ):
        folder = Path(name)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        (folder / "submit.py").write_text(SUBMITIT)
        mark = str(folder / "mark")
        (folder / "hand.sh").write_text(BY_HAND.format(python=sys.executable, script=script, mark=mark))
        cloudtrain = str(Path(sys.executable).with_name("cloudtrain"))
        ours, theirs = "`cloudtrain submit --platform slurm`", "a hand-written sbatch file with `srun`"
        commands = {
            ours: [cloudtrain, "submit", str(script), "--platform", "slurm", "--instance-count", "2", "--no-wait",
                   "--processes-per-host", "1", "--", mark],
            theirs: ["sbatch", "hand.sh"],
        }  # fmt: skip
        if not given.quick:
            torchx = peer_python("torchx_only", [TORCHX]).with_name("torchx")
            commands |= {
                "submitit": [str(submitit()), "submit.py", str(folder / "logs"), str(script), mark],
                "torchx": [str(torchx), "run", "-s", "slurm", "-cfg", "partition=main", "utils.sh", "--num_replicas",
                           "2", sys.executable, str(script), mark],
            }  # fmt: skip
        environment = {
            **os.environ,
            "SLURM_CONF": str(cluster.conf),
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        seconds = in_turns(
            {
                what: partial(until_user_code, command, folder, environment, cluster)
                for what, command in commands.items()
            },
            runs,
        )
    print(header())
    for other in list(commands)[1:]:
        print(row(ours, seconds[ours], other, seconds[other]))


def until_user_code(
    command: list[str], folder: Path, environment: dict[str, str], cluster: SlurmCluster
) -> float:
    """Seconds until the first rank has begun. Waits until the cluster is idle again."""
    began = folder / "began"
    began.unlink(missing_ok=True)
    start = time.time()
    # torchx submits the job, then fails in its search for it: the cluster has no accounting
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    subprocess.run(command, cwd=folder, env=environment, check=False, **quiet)
    deadline = time.monotonic() + SECONDS
    while not began.exists() or not began.read_text():
        if time.monotonic() > deadline:
            sys.exit(f"no script began: {command}")
        time.sleep(0.02)
    while not all(state in FINAL for state in cluster.jobs().values()):
        time.sleep(0.1)
    return min(map(float, began.read_text().split())) - start


if __name__ == "__main__":
    main()
