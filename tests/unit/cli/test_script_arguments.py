"""Arguments after ``--`` on the command line, and options that are the script's."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudtrain.cli.submit import command
from cloudtrain.errors import InvalidJob

LINES = [
    ["--flag"],
    ["--x", "1", "--x", "2"],
    ["-vv", "--k=v", "positional", "-0.5"],
    ["", "a b", "é", "line\n", "'", '"'],
    ["--", "--name", "x"],
    ["--platform", "moon", "--help", "--dry-run"],
    ["db.driver=mysql", "+trainer.gpus=[0,1]", "~x", "hydra.run.dir=${now:%Y}"],
    ["caf\udce9"],
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    return tmp_path


@pytest.mark.parametrize("line", LINES)
def test_the_request_has_the_line_as_typed(here: Path, line: list[str]) -> None:
    result = CliRunner().invoke(command, ["train.py", "--dry-run", "--", *line])
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["arguments"] == line


def test_the_line_follows_the_arguments_of_the_job_file(here: Path) -> None:
    Path("job.yaml").write_text(
        "entry_point: train.py\narguments: [fit, --lr, 0.10]\nhyperparameters: {lr: 1}\n"
    )
    result = CliRunner().invoke(command, ["job.yaml", "--dry-run", "--", "--lr", "2"])
    body = json.loads(result.stdout)
    assert body["arguments"] == ["fit", "--lr", "0.10", "--lr", "2"]
    assert body["hyperparameters"]["lr"] == "1"
    replaced = CliRunner().invoke(command, ["job.yaml", "--dry-run", "--set", "arguments=[test]"])
    assert json.loads(replaced.stdout)["arguments"] == ["test"]


def test_an_invalid_list_in_the_job_file_is_still_an_error(here: Path) -> None:
    Path("job.yaml").write_text("entry_point: train.py\narguments: fit --lr 1\n")
    result = CliRunner().invoke(command, ["job.yaml", "--dry-run", "--", "--lr", "2"])
    assert "arguments: expected a list of strings" in str(result.exception)


@pytest.mark.parametrize(
    ("given", "example"),
    [
        (["--epochs", "5"], "train.py -- --epochs 5"),
        (["--epochs=5", "x"], "train.py -- --epochs=5"),
        (["--amp", "--dry-run"], "train.py -- --amp"),
        (["-vv"], "train.py -- -vv"),
        (["-lr", "0.1", "--amp"], "train.py -- -lr 0.1"),
        (["-n5"], "train.py -- -n5"),
        (["--text", "a b"], "train.py -- --text 'a b'"),
    ],
)
def test_an_unknown_option_may_be_the_script_s(here: Path, given: list[str], example: str) -> None:
    result = CliRunner().invoke(command, ["--name", "x", "train.py", *given], prog_name="cloudtrain submit")
    assert result.exit_code == 2
    option = given[0].partition("=")[0] if given[0].startswith("--") else given[0][:2]
    assert f"No such option '{option}'." in result.stderr
    wanted = f"put it behind -- with the script's other arguments: cloudtrain submit {example}"
    assert wanted in " ".join(result.stderr.split())


def test_an_option_named_as_a_field_has_a_hint(here: Path) -> None:
    result = CliRunner().invoke(command, ["train.py", "--max-cost", "5"])
    assert (
        "No such option '--max-cost'. max_cost is a field of the job: --set max_cost=VALUE" in result.stderr
    )


@pytest.mark.parametrize(
    ("given", "sentence"),
    {
        "--nodes": "Did you mean --instance-count?",
        "--nproc_per_node": "Did you mean --processes-per-host?",
        "--env-vars": "Did you mean --env?",
        "--data": "Did you mean --input?",
        "--docker-image": "Did you mean --image?",
        "--launcher": "To choose what starts the ranks: --torchrun, --mpirun or --horovod.",
        "--partition": "An option of the platform is set with --set platform_options.partition=VALUE.",
        "--time": "max_run is a field of the job: --set max_run=VALUE.",
        "--hparams": "A hyperparameter is set with --set hyperparameters.NAME=VALUE.",
    }.items(),
)
def test_an_option_of_another_launcher_leads_to_its_own_name(here: Path, given: str, sentence: str) -> None:
    result = CliRunner().invoke(command, ["train.py", given, "2"], prog_name="cloudtrain submit")
    shown = " ".join(result.stderr.split())
    assert f"No such option '{given}'. {sentence} If it belongs to the script," in shown
    assert f"cloudtrain submit train.py -- {given} 2" in shown


def test_a_misspelt_option_is_still_suggested(here: Path) -> None:
    result = CliRunner().invoke(command, ["train.py", "--instance-cout", "2"])
    assert "--instance-count" in result.stderr


def test_a_working_folder_that_was_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    result = CliRunner().invoke(command, ["train.py"])
    assert isinstance(result.exception, InvalidJob)
    assert "the working folder was deleted" in str(result.exception)
