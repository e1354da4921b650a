"""The cost of everyday commands in this working tree, against the committed reference or another commit.

    python benchmarks/regression.py [--base REVISION] [--only NAME] [--tree FOLDER] [--renew] [--json]

Counted are all processes that a command starts, the detached ones of a job included: this process adopts and waits for
them. What is counted: the instructions of their programs, by ``perf stat`` where the processor's counters can be read,
else by valgrind, which needs no privileges and no quiet machine: two runs differ by less than 1 %. A process that forks
hands its count on, so what a supervisor loads counts again in its host. Without either, it is user and system time,
which differs by 20 % on a busy machine: a comparison with another commit then takes turns, and none is made with the
reference.

The reference, `regression.json`, is the cost of each command divided by that of importing a fixed list of modules of
the standard library, measured in the same way in the same run: it holds on any machine with that version of Python,
in a clone without history. It moves with a deliberate change: ``--renew`` writes it. The exit status is 1 if a
command costs over 10 % more; before that, it is measured twice more, and its lowest cost counts. A job that is too slow
under valgrind on a crowded machine is left out.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from _common import REPOSITORY, Report

REFERENCE = Path(__file__).with_suffix(".json")
PYTHON = ".".join(map(str, sys.version_info[:2]))
LIMIT = 1.10
SLACK_SECONDS = 0.005
"""A command may take this much longer anyway, if time is measured."""
ATTEMPTS, ROUNDS = 3, 15
PR_SET_CHILD_SUBREAPER = 36  # prctl(2)

STANDARD = (
    sys.executable, "-I", "-c",
    "import argparse, asyncio, csv, decimal, email.message, http.client, inspect, json, logging.config, "
    "multiprocessing, shutil, sqlite3, ssl, subprocess, tarfile, tempfile, unittest, urllib.request",
)  # fmt: skip
CLOUDTRAIN = (sys.executable, "-m", "cloudtrain")
SUBMIT = (*CLOUDTRAIN, "submit", "train.py")
COMMANDS: dict[str, Sequence[str]] = {
    "from cloudtrain import Estimator": (sys.executable, "-c", "from cloudtrain import Estimator"),
    "cloudtrain --help": (*CLOUDTRAIN, "--help"),
    "cloudtrain submit --dry-run": (*SUBMIT, "--dry-run", "--platform", "slurm", "--instance-count", "2"),
    "cloudtrain submit": SUBMIT,
    "import cloudtrain": (sys.executable, "-c", "import cloudtrain"),
    "import cloudtrain.distributed.torch": (sys.executable, "-c", "import cloudtrain.distributed.torch"),
    "cloudtrain list": (*CLOUDTRAIN, "list"),
    "cloudtrain submit --processes-per-host 2": (*SUBMIT, "--processes-per-host", "2"),
    "cloudtrain submit --dry-run --platform sagemaker": (
        *SUBMIT, "--dry-run", "--platform", "sagemaker", "--set", "role=arn:aws:iam::123456789012:role/train",
        "--set", "image_uri=train:1", "--set", "output_path=s3://bucket/models", "--instance-type", "ml.m5.xlarge",
    ),
    "cloudtrain plan": (*CLOUDTRAIN, "plan", "train.py", "--step-seconds", "0.42", "--steps", "100000"),
    "cloudtrain run -np 2": (*CLOUDTRAIN, "run", "-np", "2", sys.executable, "train.py"),
}  # fmt: skip
IN_REFERENCE = [*COMMANDS][:4]
"""The last one runs a job on this machine, to the end of all its processes: its first line is in it."""

Cost = Callable[[Sequence[str], Path, Path], float]
"""Of a command, run in a folder, with the packages of a tree."""
_COUNTED = re.compile(r"I +refs: +([\d,]+)")


def adopt_orphans() -> None:
    """Become the parent of detached processes, so that `cpu_of_all` can wait for them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_of_all(command: Sequence[str], folder: Path, tree: Path) -> float:
    """The CPU seconds of a command and all its descendants. Raises RuntimeError with its output if it fails."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("CLOUDTRAIN_", "AWS_"))}
    environ = {
        **own,
        "PYTHONPATH": str(tree),
        "PYTHONHASHSEED": "0",
        "CLOUDTRAIN_HOME": str(folder / "state"),
        "AWS_DEFAULT_REGION": "us-east-1",
    }
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


def by_perf(command: Sequence[str], folder: Path, tree: Path) -> float:
    """The number of instructions, from the processor's counters. Raises ValueError if these cannot be read."""
    with tempfile.NamedTemporaryFile("r") as found:
        perf = ("perf", "stat", "-x", ",", "-e", "instructions:u", "-o", found.name, "--")
        cpu_of_all((*perf, *command), folder, tree)
        [line] = [line for line in found.read().splitlines() if "instructions" in line]
    return float(line.partition(",")[0])


def by_valgrind(command: Sequence[str], folder: Path, tree: Path) -> float:
    """The number of instructions, measured with valgrind."""
    with tempfile.TemporaryDirectory() as logs:
        valgrind = (
            "valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null",
            "--trace-children=yes", f"--log-file={logs}/%p",
        )  # fmt: skip
        cpu_of_all((*valgrind, *command), folder, tree)
        counts = [found[1] for log in Path(logs).iterdir() if (found := _COUNTED.search(log.read_text()))]
    return float(sum(int(count.replace(",", "")) for count in counts))


def find_counter(folder: Path, tree: Path) -> Cost | None:
    """The function that counts instructions on this machine; None if there is none."""
    with suppress(FileNotFoundError, RuntimeError, ValueError):
        by_perf((sys.executable, "-I", "-c", "pass"), folder, tree)
        return by_perf
    return by_valgrind if shutil.which("valgrind") else None


def costs(cost: Cost, commands: Sequence[str], folder: Path, tree: Path) -> dict[str, float]:
    """The cost of each command relative to `STANDARD`, without commands that miss a deadline of a job because the
    machine is too busy."""
    for command in (STANDARD, *(COMMANDS[name] for name in commands)):
        cpu_of_all(command, folder, tree)  # compiles modules
    standard, found = cost(STANDARD, folder, tree), {}
    for name in commands:
        with suppress(RuntimeError):
            found[name] = cost(COMMANDS[name], folder, tree) / standard
    return found


def against_reference(commands: Sequence[str], tree: Path, *, renew: bool) -> dict[str, float]:
    """Compare with the reference, or write it. Returns each command's cost divided by that in the reference.

    Raises:
        SystemExit: there is no reference for this Python, or no way to count instructions.
    """
    reference = json.loads(REFERENCE.read_text())
    if not renew and PYTHON not in reference:
        sys.exit(f"{REFERENCE.name} has no costs for Python {PYTHON}: --renew adds them")
    with tempfile.TemporaryDirectory() as name:
        folder = _prepared(Path(name))
        cost = find_counter(folder, tree)
        if cost is None:
            sys.exit("nothing counts instructions here: apt-get install valgrind")
        now = costs(cost, commands, folder, tree)
        if renew:
            rounded = {command: round(ratio, 3) for command, ratio in now.items()}
            reference[PYTHON] = reference.get(PYTHON, {}) | rounded
            REFERENCE.write_text(json.dumps(reference, indent=2) + "\n")
        wanted = reference[PYTHON]
        for _ in range(1, ATTEMPTS):
            again = [what for what in commands if what not in now or now[what] > LIMIT * wanted[what]]
            more = costs(cost, again, folder, tree) if again else {}
            now |= {what: min(now.get(what, ratio), ratio) for what, ratio in more.items()}
    return {command: ratio / wanted[command] for command, ratio in now.items()}


def against_commit(commands: Sequence[str], revision: str) -> dict[str, float]:
    """Compare with another commit, in turns. Returns each command's cost divided by its cost at that commit."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        archive = ["git", "-C", str(REPOSITORY), "archive", revision, "cloudtrain"]
        with tarfile.open(fileobj=io.BytesIO(subprocess.check_output(archive))) as tar:
            tar.extractall(scratch / "then")  # the project's own files; Python 3.11.2 has no filters
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / "cloudtrain", scratch / "now" / "cloudtrain", ignore=without)
        folders = {tree: _prepared(scratch / f"in-{tree}") for tree in ("then", "now")}
        counter = find_counter(folders["now"], scratch / "now")
        rounds, cost = (1, counter) if counter else (ROUNDS, cpu_of_all)
        found: dict[tuple[str, str], list[float]] = {}
        for turn in range(rounds + 1):
            for what in commands:
                for tree, folder in folders.items():
                    took = (cost if turn else cpu_of_all)(COMMANDS[what], folder, scratch / tree)
                    if turn:
                        found.setdefault((what, tree), []).append(took)
        ratios = {}
        for what in commands:
            then, now = (statistics.median(found[what, tree]) for tree in ("then", "now"))
            is_slack = counter is None and now < then + SLACK_SECONDS
            ratios[what] = min(now / then, LIMIT) if is_slack else now / then
        return ratios


def _prepared(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text("print('training')\n")
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--base", metavar="REVISION", help="compare with this commit")
    parser.add_argument("--only", action="append", choices=COMMANDS, help="this command; can be repeated")
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="the folder that holds cloudtrain")
    parser.add_argument("--renew", action="store_true", help="make the costs of this tree the reference")
    parser.add_argument("--quick", action="store_true", help="one command, as a smoke test")
    parser.add_argument("--json", action="store_true", help="print each figure as a JSON object")
    given = parser.parse_args()
    commands = given.only or ([*COMMANDS] if given.base else IN_REFERENCE)[: 1 if given.quick else None]
    adopt_orphans()
    compare = (
        partial(against_commit, commands, given.base)
        if given.base
        else partial(against_reference, commands, given.tree.resolve(), renew=given.renew)
    )
    ratios = compare()
    report = Report(as_json=given.json)
    for command in commands:
        if command not in ratios:
            report.missing(command, "it missed a deadline of a job each time: this machine is too busy")
    for command, ratio in ratios.items():
        report.add(f"cost of `{command}`", "cloudtrain", ratio, f"times {given.base or 'the reference'}")
    if slow := [f"{command}: {ratio:.2f}" for command, ratio in ratios.items() if ratio > LIMIT]:
        sys.exit(f"costs over {LIMIT - 1:.0%} more than {given.base or 'the reference'}: {'; '.join(slow)}")


if __name__ == "__main__":
    main()
