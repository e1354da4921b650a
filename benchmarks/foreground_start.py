"""Two ranks that do nothing, in the foreground: ``cloudtrain run -np 2`` against ``mpirun -np 2`` by hand.

    python benchmarks/foreground_start.py [--runs 9]

Measures wall-clock seconds from the command to its end. The ranks are the same interpreter with the same script.
mpirun is the one next to this interpreter, or else on the PATH. The contestants take turns. Prints rows of a Markdown
table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from _common import header, in_turns, row

AS_ROOT = ("OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
           "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=9)
    runs = parser.parse_args().runs
    programs = Path(sys.executable).parent
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    mpirun = shutil.which("mpirun", path=path)
    if mpirun is None:
        sys.exit("there is no mpirun")
    environment = {**os.environ, "PATH": path, **dict.fromkeys(AS_ROOT, "1")}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text("import os\n")
        python = [sys.executable, "train.py"]
        ours, theirs = (
            "`cloudtrain run -np 2 python train.py`",
            "`mpirun -np 2 --oversubscribe python train.py`",
        )
        commands = {
            ours: [str(programs / "cloudtrain"), "run", "-np", "2", *python],
            theirs: [mpirun, "-np", "2", "--oversubscribe", *python],
        }
        seconds = in_turns(
            {what: partial(took, command, folder, environment) for what, command in commands.items()}, runs
        )
    print(header())
    print(row(ours, seconds[ours], theirs, seconds[theirs]))


def took(command: list[str], folder: str, environment: dict[str, str]) -> float:
    """Seconds that a command takes. Raises CalledProcessError if it fails."""
    began = time.monotonic()
    subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True
    )
    return time.monotonic() - began


if __name__ == "__main__":
    main()
