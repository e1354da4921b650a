"""How the cost of the everyday commands grows with the number of jobs on this machine.

    python benchmarks/growth.py [--jobs 10 1000 100000] [--runs 5] [--plot FILE.svg] [--quick]

Measures CPU seconds, user and system, of one process per command: the lowest of several runs, because other load on a
machine only adds to it. ``submit`` includes all processes of its job. Prints a Markdown table, and draws it with
``--plot``, which needs matplotlib.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from _common import in_turns
from many_jobs import make_job
from regression import CLOUDTRAIN, REPOSITORY, adopt_orphans, cpu_of_all

COMMANDS: Mapping[str, Sequence[str]] = {
    "cloudtrain --help": ("--help",),
    "cloudtrain list": ("list",),
    "cloudtrain describe job-5": ("describe", "job-5"),
    "cloudtrain logs job-5": ("logs", "job-5"),
    "cloudtrain wait job-5": ("wait", "job-5"),
    "cloudtrain submit train.py": ("submit", "train.py"),
}


def measure_commands(jobs: int, runs: int) -> dict[str, float]:
    """CPU seconds of each command, with so many jobs that have ended."""
    with tempfile.TemporaryDirectory() as name:
        folder, home = Path(name), Path(name, "state")
        (folder / "train.py").write_text("print('training')\n")
        for number in range(jobs):
            make_job(home / "jobs" / "local" / f"job-{number}", number)
        home.chmod(0o700)
        with sqlite3.connect(home / "index.db") as database:
            database.execute("CREATE TABLE submissions (name TEXT, platform TEXT, submitted_at REAL)")
            rows = ((f"job-{number}", "local", float(number)) for number in range(jobs))
            database.executemany("INSERT INTO submissions VALUES (?, ?, ?)", rows)
            database.execute("PRAGMA user_version = 2")
        turns = {
            what: partial(cpu_of_all, (*CLOUDTRAIN, *command), folder, REPOSITORY)
            for what, command in COMMANDS.items()
        }
        return {what: timing.min for what, timing in in_turns(turns, runs).items()}


def draw(found: Mapping[int, Mapping[str, float]], path: Path) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "cloudtrain"})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for what in COMMANDS:
        axes.plot(list(found), [found[jobs][what] for jobs in found], marker="o", label=what)
    axes.set(xscale="log", xlabel="jobs on this machine", ylabel="CPU time in seconds", ylim=0)
    axes.grid(alpha=0.3)
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--jobs", type=int, nargs="+", default=[10, 1000, 100_000])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--plot", type=Path, metavar="FILE.svg")
    parser.add_argument("--quick", action="store_true", help="10 jobs, one run, as a smoke test")
    given = parser.parse_args()
    if given.quick:
        given.jobs, given.runs = [10], 1
    adopt_orphans()
    found = {}
    for jobs in given.jobs:
        print(f"measuring with {jobs:,} jobs", file=sys.stderr)
        found[jobs] = measure_commands(jobs, given.runs)
    print("| command | " + " | ".join(f"{jobs:,} jobs" for jobs in found) + " |")
    print("| --- |" + " --- |" * len(found))
    for what in COMMANDS:
        print(f"| `{what}` | " + " | ".join(f"{found[jobs][what]:.3f} s" for jobs in found) + " |")
    if given.plot:
        draw(found, given.plot)


if __name__ == "__main__":
    main()
