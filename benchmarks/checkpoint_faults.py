"""Kills a training of two ranks many times, and counts what is lost: the durability of checkpoints as a table.

    python benchmarks/checkpoint_faults.py [--kills 200] [--seed 1] [--quick] [--json]

Runs the rounds of tests/integration/checkpoint_faults, which defines what is killed and what must hold. Lost are steps
that were durable but cannot be restored; torn are restored states that differ from the saved ones in any bit. Prints
all failures in full; exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from _common import OURS, TEST_FOLDERS, Report, run_parts

sys.path += TEST_FOLDERS

from fault_figures import counts
from fault_places import PLACES, open_place
from fault_rounds import play


def faults(report: Report, given: argparse.Namespace) -> None:
    failed = False
    for name in [*PLACES][:1] if given.quick else PLACES:
        kills = 2 if given.quick else given.kills if name == "s3" else max(1, given.kills // 4)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, open_place(name, Path(folder)) as place:
            figures = play(place, Path(folder), kills, given.seed)
        what = f"checkpoints in {name}"
        report.add(f"{what}: kills", OURS, figures.kills.total(), "", counts(figures.kills))
        report.add(f"{what}: durable saves", OURS, figures.durable, "", f"storage: {counts(figures.storage)}")
        report.add(f"{what}: lost", OURS, len(figures.lost), "")
        report.add(f"{what}: torn", OURS, len(figures.torn), "")
        report.add(f"{what}: all of it", OURS, time.monotonic() - start)
        if figures.lost or figures.torn or figures.wrong:
            failed = True
            print(figures, file=sys.stderr)
    if failed:
        sys.exit(1)


if __name__ == "__main__":
    run_parts(__doc__, {"faults": faults}, options=(("--kills", 200), ("--seed", 1)))
