#!/usr/bin/env python3
"""Draws docs/guides/top.svg: ``cloudtrain top`` of a real job with two hosts, with a library in place of NVIDIA's.

Run it in a clone with the packages of ``dev`` and a C compiler: python scripts/top_picture.py
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PICTURE = REPOSITORY / "docs" / "guides" / "top.svg"
WIDTH, SECONDS = 140, 150.0

SCRIPT = """
import math, os, time

import cloudtrain

rank = int(os.environ["RANK"])
for step in range(1, 1601):
    time.sleep(0.2)
    noise = 0.1 * math.sin(7 * step + rank)
    cloudtrain.log(step=step, total_steps=1600, loss=4 / (1 + step / 100) + noise)
"""


def main() -> None:
    sys.path[:0] = [str(REPOSITORY), str(REPOSITORY / "tests")]
    from nvml import compile_stand_in

    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {
            "LD_LIBRARY_PATH": str(compile_stand_in(Path(folder)).parent),
            "CLOUDTRAIN_HOME": f"{folder}/home",
            "XDG_STATE_HOME": f"{folder}/state",
        }
        PICTURE.write_text(_draw(Path(folder)), encoding="utf-8")


def _draw(folder: Path) -> str:
    from rich.console import Console

    from cloudtrain import Estimator
    from cloudtrain._display.view import look_at
    from cloudtrain.watch.top.job_page import job_page

    (folder / "train.py").write_text(SCRIPT)
    estimator = Estimator(
        "train.py",
        source_dir=str(folder),
        instance_count=2,
        distribution={"processes": {"processes_per_host": 2}},
    )
    job = estimator.fit(wait=False, job_name="train-7")
    try:
        time.sleep(SECONDS)
        lines = job_page(look_at(job.platform, job.name), WIDTH, None)
    finally:
        job.stop()
        job.until_final()
    console = Console(record=True, width=WIDTH, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for line in lines:
        console.print(line)
    # the picture loads nothing: each viewer has fonts
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="cloudtrain top"), flags=re.DOTALL)


if __name__ == "__main__":
    main()
