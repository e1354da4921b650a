"""The cost of importing cloudtrain and of ``--help``, against torchx, submitit and the SageMaker SDKs.

    python benchmarks/startup.py [--runs 11]

Measures CPU seconds, user and system, of one process per command: they depend far less on other load on the machine
than wall-clock time. The commands take turns. "Above bare Python" is the difference from the median of ``python -c
pass`` in the same environment.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import _peers
from _common import cpu_seconds, in_turns

ISOLATED = ("-I", "-c")
"""Isolated: otherwise, Python would import the working tree from the current folder."""


@dataclass(frozen=True)
class Contestant:
    """A command in the environment of ``python``, and the equivalent command of cloudtrain."""

    who: str
    shown: str
    python: Path
    command: tuple[str, ...]
    ours: str


def importing(who: str, python: Path, code: str, ours: str) -> Contestant:
    return Contestant(who, code, python, (str(python), *ISOLATED, code), ours)


def helping(who: str, python: Path, script: str, ours: str) -> Contestant:
    return Contestant(who, f"{script} --help", python, (str(python.with_name(script)), "--help"), ours)


def contestants() -> list[Contestant]:
    ours, torchx, submitit = _peers.cloudtrain(), _peers.torchx(), _peers.submitit()
    sdk2, sdk3 = _peers.sagemaker_2(), _peers.sagemaker_3()
    bare, use, help_ = "import cloudtrain", "from cloudtrain import Estimator", "cloudtrain --help"
    return [
        importing("cloudtrain", ours, bare, bare),
        importing(_peers.TORCHX, torchx, "import torchx", bare),
        importing(_peers.SAGEMAKER_2, sdk2, "import sagemaker", bare),
        # a namespace package, which loads nothing
        importing(_peers.SAGEMAKER_3, sdk3, "import sagemaker", bare),
        importing("cloudtrain", ours, use, use),
        importing(_peers.TORCHX, torchx, "from torchx.specs import AppDef", use),
        importing(_peers.TORCHX, torchx, "from torchx.runner import get_runner", use),
        importing(_peers.SUBMITIT, submitit, "import submitit", use),
        importing(_peers.SAGEMAKER_2, sdk2, "from sagemaker.estimator import Estimator", use),
        importing(_peers.SAGEMAKER_3, sdk3, "from sagemaker.train import ModelTrainer", use),
        helping("cloudtrain", ours, "cloudtrain", help_),
        helping(_peers.TORCHX, torchx, "torchx", help_),
    ]


def nothing(python: Path) -> tuple[str, ...]:
    """The baseline: its cost is included in every other command of this environment."""
    return str(python), *ISOLATED, "pass"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=11)
    runs = parser.parse_args().runs
    table = contestants()
    commands = {*(each.command for each in table), *(nothing(each.python) for each in table)}
    seconds = in_turns({command: partial(_cpu_seconds, command) for command in commands}, runs)
    ours = {each.shown: seconds[each.command].median for each in table if each.ours == each.shown}
    print("| who | command | CPU, median (min to max) | above bare Python | its CPU / cloudtrain's |")
    print("| --- | --- | --- | --- | --- |")
    for each in table:
        timing = seconds[each.command]
        above = timing.median - seconds[nothing(each.python)].median
        ratio = "" if each.ours == each.shown else f"{timing.median / ours[each.ours]:.2f}"
        print(f"| {each.who} | `{each.shown}` | {timing} | {above:.3f} s | {ratio} |")


def _cpu_seconds(command: tuple[str, ...]) -> float:
    return cpu_seconds(command, 1).median


if __name__ == "__main__":
    main()
