"""``cloudtrain sweep``: mistakes are errors before anything is submitted, and a job file describes the same sweep."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudtrain.cli import cli
from cloudtrain.index import list_jobs
from cloudtrain.sweep.controller import Controller
from cloudtrain.sweep.journal import sweeps_home

SPACE = ("--search", "lr=0.0..1.0")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import sys; print('loss=' + sys.argv[-1])\n")
    return tmp_path


def sweep(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["sweep", *arguments], prog_name="cloudtrain")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["train.py", "--metric", "loss"], "the space of the sweep is empty"),
        (["train.py", *SPACE], "the sweep has no metric"),
        (["missing.py", *SPACE, "--metric", "loss"], "missing.py"),
        (["train.py", *SPACE, "--metric", "loss", "--trials", "0"], "trials: 0"),
        (["train.py", *SPACE, "--metric", "loss", "--instance-count", "0"], "instance_count"),
        (["train.py", *SPACE, "--metric", "loss", "--env", "API_TOKEN=x"], "API_TOKEN looks like a secret"),
        (
            ["train.py", "--search", "api_key=9f3kXq82LmZpT0aB,x8Rr21VbQ9dLw7Ke", "--metric", "loss"],
            "search api_key: a choice looks like a secret",
        ),
        (
            ["train.py", *SPACE, "--metric", "loss", "--platform", "slurm", "--trials-per-host", "2"],
            "trials_per_host: on slurm each trial is a separate job",
        ),
        (
            ["train.py", *SPACE, "--metric", "acc", "--set", "metric_definitions=[{Name: a, Regex: a=(.)}]"],
            "nothing reports acc",
        ),
        (["train.py", *SPACE, "--metric", "loss", "--lr", "3"], "behind --"),
        (["wrong.yaml"], "sweep: there is no field 'trails'"),
        (["list.yaml", "--search", "lr=1,2"], "space: not a mapping of hyperparameters to their values"),
        (["describe", "missing"], "there is no sweep missing"),
    ],
)
def test_what_is_refused(folder: Path, arguments: list[str], problem: str) -> None:
    (folder / "wrong.yaml").write_text("entry_point: train.py\nsweep: {trails: 3}\n")
    (folder / "list.yaml").write_text("entry_point: train.py\nsweep: {space: [lr], metric: loss}\n")
    refused = sweep(*arguments)
    assert refused.exit_code
    assert problem in f"{refused.exception} {refused.output}"
    assert list_jobs() == []
    assert not sweeps_home().exists() or not [*sweeps_home().iterdir()]


def test_a_job_file_describes_the_same_sweep_in_the_foreground(folder: Path) -> None:
    (folder / "job.yaml").write_text(
        "entry_point: train.py\n"
        "platform: local\n"
        "metric_definitions: [{Name: loss, Regex: 'loss=(.+)'}]\n"
        "sweep: {space: {lr: '0.1,0.2,0.3'}, metric: loss, sampler: grid, trials: 3}\n"
    )
    done = sweep("job.yaml", "--name", "opt", "--trials", "2", "--foreground")
    assert done.exit_code == 0, done.output
    assert "Sweep opt: 2 trials, grid, to minimize loss" in done.stderr
    assert "best: opt-0000  loss=0.1  lr=0.1" in done.stdout
    described = json.loads(sweep("describe", "opt", "--json").stdout)
    assert described["status"] == "Completed"
    assert [(trial["name"], trial["value"]) for trial in described["trials"]] == [
        ("opt-0000", 0.1),
        ("opt-0001", 0.2),
    ]
    assert "opt" in sweep("list").stdout
    assert json.loads(sweep("best", "opt", "--json").stdout)["parameters"] == {"lr": 0.1}


def test_the_log_of_a_controller_in_the_foreground_spoils_no_output(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, errors = Controller.turn, [OSError(errno.ENOSPC, "No space left on device")]

    def first_without_space(controller: Controller) -> bool:
        if errors:
            raise errors.pop()
        return turn(controller)

    monkeypatch.setattr(Controller, "turn", first_without_space)
    definitions = "metric_definitions=[{Name: loss, Regex: 'loss=(.+)'}]"
    done = sweep(
        "train.py", "--name", "opt", "--search", "lr=0.1,0.2", "--metric", "loss", "--set", definitions,
        "--sampler", "grid", "--platform", "local", "--foreground", "--json",
    )  # fmt: skip
    assert json.loads(done.stdout)["status"] == "Completed"
    assert "No space left on device" in done.stderr


def test_more_trials_are_printed_without_those_before(folder: Path) -> None:
    common = ("--set", "metric_definitions=[{Name: loss, Regex: 'loss=(.+)'}]", "--sampler", "grid")
    done = sweep(
        "train.py",
        "--name",
        "opt",
        "--search",
        "lr=0.1,0.2",
        "--metric",
        "loss",
        "--trials",
        "1",
        "--no-wait",
        *common,
    )
    assert (done.exit_code, done.stdout) == (0, "opt\n"), done.output
    assert "opt-0000  Completed loss=0.1" in sweep("wait", "opt").stdout
    more = sweep("continue", "opt", "--trials", "1")
    assert more.exit_code == 0, more.output
    assert [line.split()[0] for line in more.stdout.splitlines()] == ["opt-0001", "best:"]
    assert sweep("stop", "opt").stdout == "opt: no further trials\n"
