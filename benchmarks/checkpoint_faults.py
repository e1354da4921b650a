"""Kills a training of two ranks many times, and counts what is lost: the durability of checkpoints as a table.

    python benchmarks/checkpoint_faults.py [--kills 200] [--seed 1]

Runs the rounds of tests/integration/checkpoint_faults, which defines what is killed and what must hold. Lost are steps
that were durable but cannot be restored; torn are restored states that differ from the saved ones in any bit. Prints a
Markdown table and all failures in full; exits with 1 if there are any.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from _common import TEST_FOLDERS

sys.path += TEST_FOLDERS

from fault_figures import counts
from fault_places import PLACES, open_place
from fault_rounds import play


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="in S3; a quarter in each other place")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    failed = False
    print("| checkpoints in | kills | of | storage | durable saves | lost | torn | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in PLACES:
        kills = arguments.kills if name == "s3" else max(1, arguments.kills // 4)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, open_place(name, Path(folder)) as place:
            figures = play(place, Path(folder), kills, arguments.seed)
        cells = [
            name,
            str(figures.kills.total()),
            counts(figures.kills),
            counts(figures.storage),
            str(figures.durable),
            str(len(figures.lost)),
            str(len(figures.torn)),
            f"{time.monotonic() - start:.0f}",
        ]
        print("|", " | ".join(cells), "|", flush=True)
        if figures.lost or figures.torn or figures.wrong:
            failed = True
            print(figures, file=sys.stderr)
    sys.exit(failed)


if __name__ == "__main__":
    main()
