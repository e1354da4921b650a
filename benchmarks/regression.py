"""The CPU time of everyday commands in this working tree, against another revision of it.

    python benchmarks/regression.py [--base REVISION] [--runs 15] [--quick]

Both trees run with this interpreter and its packages, and take turns. Each row counts user and system time of all
processes that the command starts, the detached ones of a job included: this process adopts and waits for them. The
lowest of several runs counts, because other load on a machine only adds to CPU time. Prints a Markdown table. The exit
status is 1 if a command needs over 10 % and 5 ms more CPU time than at REVISION.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from _common import in_turns

REPOSITORY = Path(__file__).parents[1]
BASE = "c3a686b3"
"""The commit whose costs are the limit. It moves when a release or a deliberate change sets another."""
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)
ALLOWED, SLACK = 1.10, 0.005
"""The ratio and the seconds, both of which a regression exceeds."""

SCRIPT = "print('training')\n"
CLOUDTRAIN = (sys.executable, "-m", "cloudtrain")
COMMANDS: dict[str, Sequence[str]] = {
    "import cloudtrain": (sys.executable, "-c", "import cloudtrain"),
    "from cloudtrain import Estimator": (sys.executable, "-c", "from cloudtrain import Estimator"),
    "import cloudtrain.distributed.torch": (sys.executable, "-c", "import cloudtrain.distributed.torch"),
    "cloudtrain --help": (*CLOUDTRAIN, "--help"),
    "cloudtrain list": (*CLOUDTRAIN, "list"),
    "cloudtrain submit train.py": (*CLOUDTRAIN, "submit", "train.py"),
    "cloudtrain submit train.py --processes-per-host 2": (
        *CLOUDTRAIN, "submit", "train.py", "--processes-per-host", "2",
    ),
    "cloudtrain submit train.py --dry-run --platform slurm": (
        *CLOUDTRAIN, "submit", "train.py", "--dry-run", "--platform", "slurm", "--instance-count", "2",
    ),
    "cloudtrain submit train.py --dry-run --platform sagemaker": (
        *CLOUDTRAIN, "submit", "train.py", "--dry-run", "--platform", "sagemaker", "--set",
        "role=arn:aws:iam::123456789012:role/train", "--set", "image_uri=train:1", "--set", "output_path=s3://bucket/models",
        "--instance-type", "ml.m5.xlarge",
    ),
    "cloudtrain run -np 2 python train.py": (*CLOUDTRAIN, "run", "-np", "2", sys.executable, "train.py"),
}  # fmt: skip


def adopt_orphans() -> None:
    """Become the parent of detached processes, so that `cpu_of_all` can wait for them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_of_all(command: Sequence[str], folder: Path, tree: Path) -> float:
    """CPU seconds of a command and all its descendants. Raises RuntimeError with its output if it fails."""
    environ = {**os.environ, "PYTHONPATH": str(tree), "CLOUDTRAIN_HOME": str(folder / "state")}
    environ["AWS_DEFAULT_REGION"] = "eu-central-1"
    environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each tree keeps its compiled modules
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=output, stderr=output
        )
        seconds, status = 0.0, 0
        with suppress(ChildProcessError):  # all have ended
            while True:
                pid, ended, usage = os.wait4(-1, 0)
                seconds += usage.ru_utime + usage.ru_stime
                if pid == child.pid:
                    status = child.returncode = os.waitstatus_to_exitcode(ended)
        output.seek(0)
        if status:
            raise RuntimeError(f"{command}: exit status {status}\n{output.read().decode(errors='replace')}")
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--base", default=BASE, metavar="REVISION")
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument(
        "--quick", action="store_true", help="two commands, once, as a smoke test: never a regression"
    )
    given = parser.parse_args()
    adopt_orphans()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        archive = ["git", "-C", str(REPOSITORY), "archive", given.base, "cloudtrain"]
        with tarfile.open(fileobj=io.BytesIO(subprocess.check_output(archive))) as tar:
            tar.extractall(scratch / "then", filter="data")
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "cloudtrain", scratch / "now" / "cloudtrain", ignore=without)
        commands = dict([*COMMANDS.items()][:2]) if given.quick else COMMANDS
        regressed = compare(scratch, commands, 1 if given.quick else given.runs, given.base)
    if regressed and not given.quick:
        sys.exit("\n".join(f"needs more CPU time than at {given.base}: {command}" for command in regressed))


def compare(scratch: Path, commands: Mapping[str, Sequence[str]], runs: int, revision: str) -> list[str]:
    """Print a row for each command; returns those that have become slower. The trees are ``then`` and ``now``."""
    turns = {}
    for tree in ("then", "now"):
        folder = scratch / f"in-{tree}"
        folder.mkdir()
        (folder / "train.py").write_text(SCRIPT)
        for what, line in commands.items():
            turns[what, tree] = partial(cpu_of_all, line, folder, scratch / tree)
    seconds = in_turns(turns, runs)
    print(f"| command | CPU at {revision}, lowest of {runs} | now | now / then |\n| --- | --- | --- | --- |")
    regressed = []
    for what in commands:
        then, now = seconds[what, "then"].min, seconds[what, "now"].min
        print(f"| `{what}` | {then:.3f} s | {now:.3f} s | {now / then:.2f} |")
        if now > then * ALLOWED and now > then + SLACK:
            regressed.append(what)
    return regressed


if __name__ == "__main__":
    main()
