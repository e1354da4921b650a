#!/usr/bin/env python3
"""Draws the pictures of the guides, from real trainings on this machine.

  scripts/pictures.py [watch] [notebook] [timeline]

- watch: the terminal, the dashboard, a sweep and a report, in ten minutes. A job of four hosts trains a small network
  with PyTorch, after jobs that have ended and a sweep. A library of the tests replaces NVIDIA's.
- notebook: the card of a job in JupyterLab.
- timeline: the commands of docs/guides/timeline.md.

Run it in a clone with the packages of ``dev``, PyTorch, a C compiler and Chromium. Look at each
picture before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[1]
GUIDES = REPOSITORY / "docs" / "guides"
PICTURES = GUIDES / "pictures"
COLUMNS = 118
SAMPLED = 170.0
"""Seconds after which a job has samples enough for a picture: one in ten seconds."""

TRAIN = """
import argparse
import math
import time

import torch

import cloudtrain
import cloudtrain.distributed.torch as hvd
from cloudtrain.checkpoint import Checkpointer

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.05)
parser.add_argument("--width", type=int, default=64)
parser.add_argument("--steps", type=int, default=300)
parser.add_argument("--pause", type=float, default=0.0)
given = parser.parse_args()

hvd.init()
torch.set_num_threads(1)
torch.manual_seed(hvd.rank())


def spirals(count):
    arm, radius = torch.randint(3, (count,)), torch.rand(count)
    angle = 5 * radius + 2 * math.pi * arm / 3 + 0.15 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm


model = torch.nn.Sequential(
    torch.nn.Linear(2, given.width), torch.nn.ReLU(),
    torch.nn.Linear(given.width, given.width), torch.nn.ReLU(), torch.nn.Linear(given.width, 3),
)
optimizer = torch.optim.SGD(model.parameters(), lr=given.lr, momentum=0.9)
optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
unseen, arms = spirals(1000)

with Checkpointer(every="30s", best="accuracy") as checkpointer:
    for step in range(1, given.steps + 1):
        points, wanted = spirals(128)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(points), wanted)
        if not loss < 100:
            raise FloatingPointError(f"the loss is {loss.item():.0f} in step {step}: the learning rate is too high")
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            accuracy = (model(unseen).argmax(1) == arms).float().mean().item()
        cloudtrain.log(step=step, total_steps=given.steps, loss=loss.item(), accuracy=accuracy)
        checkpointer.maybe_save(step, model.state_dict, metrics={"accuracy": accuracy})
        if step % 20 == 0 and hvd.rank() == 0:
            print(f"step {step}: loss {loss.item():.3f}, accuracy {accuracy:.1%}", flush=True)
        time.sleep(given.pause)
"""
NOTEBOOK = """
from cloudtrain import Estimator

estimator = Estimator(
    "train.py",
    instance_count=2,
    distribution={"processes": {"processes_per_host": 2}},
    hyperparameters={"lr": 0.05, "steps": 200, "pause": 0.1},
)
estimator.fit(job_name="spirals")
"""


def watch(folder: Path) -> None:
    from dashboard_client import dashboard

    from cloudtrain import Sweep

    _train("spirals-narrow", folder, lr=0.05, width=8, pause=0.02).until_final()
    _train("spirals-wide", folder, lr=0.05, width=64, pause=0.02).until_final()
    _train("spirals-hot", folder, lr=200.0, width=64, pause=0.02).until_final()
    estimator = _estimator(folder, 1, 1, steps=60)
    space = {"lr": "log:1e-3..3", "width": [8, 32, 128]}
    options = {"goal": "maximize", "trials": 18, "parallel": 2, "seed": 3}
    Sweep(estimator, space, "accuracy", name="spirals-search", **options).fit()
    job = _train("spirals", folder, hosts=4, lr=0.1, width=64, steps=900, pause=0.3)
    began = time.monotonic()
    try:
        while job.describe().progress is None:
            time.sleep(1)
        time.sleep(max(SAMPLED - (time.monotonic() - began), 0))
        _draw_terminal(job)
        with dashboard(folder) as client:
            _browse(_steps_of(client.url))
    finally:
        job.stop()
        job.until_final()
    _cloudtrain("report", "spirals-narrow", "spirals-wide", "-o", "report.html", folder=folder)
    _browse([["size", 1100, 900], ["goto", f"file://{folder}/report.html"], ["shoot", "report", True]])


def _estimator(folder: Path, hosts: int, ranks: int, **hyperparameters: float) -> Any:
    from cloudtrain import Estimator

    return Estimator(
        "train.py",
        source_dir=str(folder),
        instance_count=hosts,
        distribution={"processes": {"processes_per_host": ranks}},
        hyperparameters=hyperparameters,
    )


def _train(name: str, folder: Path, hosts: int = 1, **hyperparameters: float) -> Any:
    return _estimator(folder, hosts, 2, **hyperparameters).fit(wait=False, job_name=name)


def _draw_terminal(job: Any) -> None:
    from rich.console import Console

    from cloudtrain._display.view import look_at
    from cloudtrain.watch.top.job_page import job_page

    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    for line in job_page(look_at(job.platform, job.name), COLUMNS, None):
        console.print(line)
    # the picture loads nothing: each viewer has fonts
    drawn = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="cloudtrain top"), flags=re.DOTALL)
    (GUIDES / "top.svg").write_text(drawn, encoding="utf-8")


def _steps_of(url: str) -> list[list[Any]]:
    """The steps of a person with the dashboard."""
    return [
        ["size", 1100, 445], ["goto", url], ["wait", ".status.running"], ["shoot", "dashboard-jobs", False],
        ["check", "[aria-label='Select spirals-wide']"], ["check", "[aria-label='Select spirals-narrow']"],
        ["click", "text=Compare the selected jobs"], ["wait", "text=What differs"],
        ["shoot", "dashboard-comparison", True],
        ["back"], ["click", "table.jobs >> text='spirals'"], ["wait", "canvas"], ["wait", "#lines pre"],
        ["wait", "table.heat"], ["pause", 5], ["shoot", "dashboard-job", True],
        ["dark"], ["size", 1100, 820], ["reload"], ["wait", "canvas"], ["wait", "#lines pre"], ["pause", 2],
        ["shoot", "dashboard-dark", False],
        ["size", 390, 844], ["light"], ["reload"], ["wait", "canvas"], ["pause", 2],
        ["shoot", "dashboard-phone", False],
        ["size", 1100, 820], ["click", "header a"], ["click", "text=spirals-search"], ["wait", "svg polyline"],
        ["pause", 2], ["shoot", "sweep", True],
    ]  # fmt: skip


def notebook(folder: Path) -> None:
    import nbformat
    from test_notebook_in_a_browser import PACKAGES, jupyterlab

    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    book.cells = [nbformat.v4.new_code_cell(textwrap.dedent(NOTEBOOK).strip())]
    nbformat.write(book, folder / "jobs.ipynb")
    from browser import programs_with

    with jupyterlab(programs_with(PACKAGES, "notebook_browser"), folder, "Light") as url:
        _browse([
            ["size", 1250, 1400], ["goto", url], ["wait", ".jp-Notebook .jp-Cell"], ["wait", "text=| Idle"],
            ["pause", 3], ["click", ".jp-Notebook .jp-Cell >> nth=0"], ["press", "Shift+Enter"],
            ["wait", ".cloudtrain-job >> text=/step 1[0-9][0-9] of/"],
            ["part", "notebook", ".jp-Notebook .jp-Cell >> nth=0"],
            ["wait", ".cloudtrain-job.is-completed"],
        ])  # fmt: skip


def timeline(folder: Path) -> None:
    page = (GUIDES / "timeline.md").read_text(encoding="utf-8")
    script = re.search(r"^```python train\.py\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert script, "timeline.md has no train.py"
    (folder / "train.py").write_text(script[1], encoding="utf-8")
    options = ["--torchrun", "--processes-per-host", "2", "--set", "timeline=true"]
    _cloudtrain("submit", "train.py", "--name", "timed", *options, folder=folder)
    _cloudtrain("timeline", "timed", "--png", str(PICTURES / "timeline.png"), folder=folder)


def _cloudtrain(*command: str, folder: Path) -> None:
    subprocess.run([sys.executable, "-m", "cloudtrain", *command], cwd=folder, check=True)


def _browse(steps: Sequence[Sequence[Any]]) -> None:
    """Take the steps in Chromium; ``_browse.py`` has what each one is."""
    from browser import find_chromium, programs_with

    program = [str(programs_with() / "python"), str(Path(__file__).with_name("_browse.py"))]
    command = [*program, find_chromium() or "chromium", str(PICTURES)]
    subprocess.run(command, input=json.dumps(steps), text=True, check=True)


PARTS = {"watch": watch, "notebook": notebook, "timeline": timeline}


def main() -> None:
    wanted = sys.argv[1:] or [*PARTS]
    if not {*wanted} <= {*PARTS}:
        sys.exit((__doc__ or "").strip())
    tests = REPOSITORY / "tests"
    sys.path[:0] = [str(REPOSITORY), *(str(tests / name) for name in ("", "soak", "integration/slurm"))]
    sys.path[:0] = [str(path.parent) for path in tests.rglob("dashboard_client.py")]
    from nvml import ORDERS, compile_stand_in

    for part in wanted:
        with tempfile.TemporaryDirectory(prefix="cloudtrain-") as name:
            folder = Path(name)
            (orders := folder / "orders").write_text("training")
            os.environ |= {
                "LD_LIBRARY_PATH": str(compile_stand_in(folder).parent),
                ORDERS: str(orders),
                "CLOUDTRAIN_HOME": f"{folder}/home",
                "XDG_STATE_HOME": f"{folder}/state",
                "PYTHONPATH": str(REPOSITORY),
            }
            (source := folder / "spirals").mkdir()
            (source / "train.py").write_text(TRAIN.lstrip())
            PARTS[part](source)


if __name__ == "__main__":
    main()
