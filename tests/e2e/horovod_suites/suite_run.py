"""Runs one part of the list and compares the outcome of its tests with what the list gives."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from suite_list import Part
from suite_outcome import Outcome, compare, read_outcome

RANK = Path(__file__).parent / "rank" / "suite_rank.py"
TIME_TO_STOP = 60


@dataclass(frozen=True)
class Result:
    """How a part's run compares with the list: `as listed`, `differs` or `left out`, and why."""

    part: Part
    verdict: str
    why: tuple[str, ...] = ()
    outcome: Outcome | None = None
    seconds: float = 0.0


def run(part: Part, checkout: Path, pythons: dict[str, str], work: Path) -> Result:
    """Run a part until it ends, or until its time limit: a hang is a difference."""
    python = pythons.get(part.python)
    if python is None:
        return Result(part, "left out", (f"it needs --python {part.python}=PATH",))
    file = checkout / part.file
    if not file.exists():
        return Result(part, "left out", (f"there is no {file}",))
    if part.launcher in ("mpi", "mpirun") and shutil.which("mpirun") is None:
        return Result(part, "left out", ("it needs mpirun",))
    folder = work / part.name
    results = folder / "results"
    results.mkdir(parents=True)
    words = [str(results), str(file), *(["-k", part.select] if part.select else [])]
    variables = {
        "OMP_NUM_THREADS": "1",
        **part.environment,
        "SUITE_LIBRARIES": sysconfig.get_paths()["purelib"],
    }
    command = [sys.executable, "-m", "cloudtrain", *_launch(part, python, variables, folder), *words]
    environment = {**os.environ, **variables, "CLOUDTRAIN_HOME": str(work / "cloudtrain")}
    started = time.monotonic()
    status = _call(command, environment, folder, part.timeout)
    outcome = read_outcome(results)
    why = compare(part, outcome)
    if status is None:
        why.insert(0, f"it did not end in {part.timeout} s")
    elif status:
        why.append(f"exit status {status}: see {folder / 'log'}")
    verdict = "differs" if why else "as listed"
    return Result(part, verdict, tuple(why), outcome, time.monotonic() - started)


def _launch(part: Part, python: str, variables: dict[str, str], folder: Path) -> list[str]:
    """The arguments of cloudtrain, up to those of the rank program."""
    if part.launcher in ("run", "mpi"):
        mpi = ["--mpi"] if part.launcher == "mpi" else []
        return [
            "run",
            "-np",
            str(part.ranks),
            "--oversubscribe",
            "--allow-run-as-root",
            *mpi,
            python,
            str(RANK),
        ]
    launcher = f"--{part.launcher}"
    settings = {f"environment.{name}": value for name, value in variables.items()}
    if python != sys.executable:
        settings["platform_options.python"] = python
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    ranks = ["--processes-per-host", str(part.ranks)]
    output = ["--name", part.name, "--output-path", (folder / "output").as_uri()]
    return ["submit", str(RANK), *output, launcher, *ranks, *options, "--"]


def _call(command: list[str], environment: dict[str, str], folder: Path, timeout: float) -> int | None:
    """The exit status of a command. None: it ran into its time limit, was interrupted, and then killed."""
    with (folder / "log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGTERM if "run" in command else signal.SIGINT)
        if "submit" in command:
            name = command[command.index("--name") + 1]
            stop = [sys.executable, "-m", "cloudtrain", "stop", name]
            subprocess.run(
                stop, env=environment, cwd=folder, stdout=log, stderr=log, timeout=TIME_TO_STOP, check=False
            )
        try:
            process.wait(TIME_TO_STOP)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return None


def report(result: Result) -> Result:
    """Print one line of the table of a run, and one for each difference."""
    counts = f"{result.outcome.counts}" if result.outcome else ""
    print(f"{result.part.name:24} {result.verdict:10} {result.seconds:6.1f} s  {counts}", flush=True)
    for line in result.why:
        print(f"    {line}", flush=True)
    return result
