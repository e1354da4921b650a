"""``cloudtrain submit --array`` on a platform without arrays: a job for each element."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cloudtrain.cli import cli
from cloudtrain.index import list_jobs


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import sys; print(sys.argv); sys.exit('fail' in sys.argv)\n")
    (tmp_path / "values.yaml").write_text("hyperparameters.lr: [0.1, 1e-2]\nhyperparameters.size: [8]\n")
    return tmp_path


def submit(*options: str) -> Result:
    command = ["submit", "train.py", "--platform", "local", "--name", "sweep", *options]
    return CliRunner().invoke(cli, command, prog_name="cloudtrain")


def test_a_dry_run_shows_the_elements(files: Path) -> None:
    shown = submit("--array", "values.yaml", "--dry-run")
    assert shown.stdout.splitlines() == [
        "sweep-0  hyperparameters.lr=0.1  hyperparameters.size=8",
        "sweep-1  hyperparameters.lr=0.01  hyperparameters.size=8",
    ]
    assert shown.stderr == "2 jobs, submitted one by one\n"
    found = json.loads(submit("--array", "values.yaml", "--dry-run", "--json").stdout)
    assert found["script"] is None
    assert [job["request"]["hyperparameters"]["lr"] for job in found["jobs"]] == ["0.1", "0.01"]
    assert list_jobs() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--array", "missing.yaml"], "there is no file missing.yaml"),
        (["--array", "values.yaml", "--check"], "--array and --check cannot be combined"),
        (["--array", "train.py", "--dry-run"], "train.py"),
        (["--array", "values.yaml", "--name", "a" * 62], "is too long with the numbers"),
    ],
)
def test_what_is_refused(files: Path, options: list[str], message: str) -> None:
    refused = submit(*options)
    assert refused.exit_code
    assert message in f"{refused.exception} {refused.output}"
    assert list_jobs() == []


def test_every_element_is_a_job(files: Path) -> None:
    (files / "values.yaml").write_text("- arguments: [fail]\n- arguments: [works]\n")
    done = submit("--array", "values.yaml", "--wait")
    assert done.exit_code == 1
    assert done.stdout.splitlines() == ["sweep-0", "sweep-1"]
    assert "2 jobs, submitted one by one on local" in done.stderr
    assert "sweep-0: Failed: " in done.stderr
    assert "sweep-1: Completed" in done.stderr
