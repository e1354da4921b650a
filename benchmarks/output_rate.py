"""Measures how many lines per second the runtime passes on from its ranks, with and without metrics in them.

    python benchmarks/output_rate.py [--runs 7] [--quick] [--json]

One writer fills the pipe of a rank from a file as fast as it is read. The merger keeps the rank's log, writes the
merged log and looks for metrics. Nothing else runs, so the rates are those of the merger's thread. Prints rows of a
Markdown table; the last column is how many times longer a line takes than an ordinary one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from _common import Report, in_turns, run_parts

from cloudtrain.observe import EventLog
from cloudtrain.runtime.metrics import MetricFinder
from cloudtrain.runtime.output import OutputMerger

DEFINITIONS = (("loss", r"loss=([0-9.]+)"),)

CONTESTANTS = {
    "ordinary lines": ("step {0} took 0.021 s on device 0", ()),
    "a metric definition that matches no line": ("step {0} took 0.021 s on device 0", DEFINITIONS),
    "a metric definition that matches every line": ("step {0} loss=0.{0} on device 0", DEFINITIONS),
}


def output(report: Report, given: argparse.Namespace) -> None:
    lines = 20_000 if given.quick else given.lines
    with tempfile.TemporaryDirectory() as folder:
        contestants = {
            what: partial(seconds, Path(folder), _file(Path(folder), what, line, lines), definitions)
            for what, (line, definitions) in CONTESTANTS.items()
        }
        for who, took in in_turns(contestants, given.runs).items():
            report.add("lines passed on", who, [lines / each for each in took], "lines/s")


def _file(folder: Path, what: str, line: str, lines: int) -> Path:
    path = folder / f"{what}.txt"
    path.write_text("".join(f"{line.format(number)}\n" for number in range(lines)))
    return path


def seconds(folder: Path, output: Path, definitions: tuple[tuple[str, str], ...]) -> float:
    """The seconds until the merger has forwarded all lines of ``output``."""
    with tempfile.TemporaryDirectory(dir=folder) as run:
        metrics = MetricFinder(definitions, EventLog(Path(run, "events.jsonl"), "algo-1"))
        target = os.open(Path(run, "job.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        merger = OutputMerger(target, Path(run), metrics if definitions else None)
        merger.add_rank(f"{run}/pipe", 0)
        merger.start()
        began = time.perf_counter()
        with open(f"{run}/pipe", "wb") as pipe:
            subprocess.run(["cat", str(output)], stdout=pipe, check=True)
        merger.close()
        took = time.perf_counter() - began
        metrics.close()
        os.close(target)
    return took


if __name__ == "__main__":
    run_parts(__doc__, {"output": output}, runs=7, options=(("--lines", 500_000),))
