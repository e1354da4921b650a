"""``cloudtrain doctor``, ``submit --check`` and ``submit --diff`` as users run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command import Result, cloudtrain


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("import helpers\nprint('trained')\n")
    (tmp_path / "helpers.py").write_text("import json\n")
    (tmp_path / "job.yaml").write_text("entry_point: train.py\nsource_dir: .\nhyperparameters: {lr: 0.1}\n")
    return tmp_path


def outcomes(result: Result) -> dict[str, str]:
    return {check["name"]: check["outcome"] for check in result.json}


@pytest.mark.parametrize("command", [("doctor", "job.yaml"), ("submit", "job.yaml", "--check")])
def test_a_job_without_problems(source: Path, command: tuple[str, ...]) -> None:
    result = cloudtrain(*command, "--json", cwd=source)
    assert result.code == 0
    found = outcomes(result)
    assert {found[name] for name in ("request", "source", "python")} == {"ok"}
    assert cloudtrain("list", "--json", cwd=source).json == []


def test_without_a_job_it_leads_to_other_platforms(tmp_path: Path) -> None:
    assert "cloudtrain doctor --platform NAME" in cloudtrain("doctor", cwd=tmp_path).err
    assert cloudtrain("doctor", "--platform", "local", cwd=tmp_path).err == ""


def test_the_table_shows_every_check_and_its_hint(source: Path) -> None:
    (source / "helpers.py").write_text("import no_such_module\n")
    result = cloudtrain("doctor", "job.yaml", cwd=source)
    assert result.code == 0  # a warning
    lines = result.out.splitlines()
    assert any(line.startswith("✓  source") for line in lines)
    assert any(line.startswith("!  imports") and "no_such_module" in line for line in lines)
    assert any("Your own modules: pack their folder" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("train.py", "x = (", "train.py:1"),
        ("helpers.py", "x = (", "helpers.py:1"),
        ("job.yaml", "entry_point: none.py", "none.py"),
        ("job.yaml", "entry_point: train.py\nmax_run: -1", "max_run"),
    ],
)
def test_a_job_that_would_fail(source: Path, name: str, text: str, words: str) -> None:
    (source / name).write_text(text)
    result = cloudtrain("doctor", "job.yaml", "--json", cwd=source)
    assert result.code == 1
    [failed] = [check for check in result.json if check["outcome"] == "failed"]
    assert words in failed["what"]


def test_a_platform_without_a_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    result = cloudtrain("doctor", "--json", cwd=tmp_path)
    assert result.code == 1
    found = outcomes(result)
    assert (found["python"], found["S3 endpoint"]) == ("ok", "failed")


def test_sagemaker_without_credentials(tmp_path: Path) -> None:
    result = cloudtrain("doctor", "--platform", "sagemaker", "--set", "role=Trainer", "--json", cwd=tmp_path)
    assert result.code == 1
    found = outcomes(result)
    assert found.pop("credentials") == "failed"
    assert set(found) == {"create jobs", "default bucket", "role", "role: trust", "role: pass"}
    assert set(found.values()) == {"unknown"}


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    result = cloudtrain("doctor", "none.yaml", cwd=tmp_path)
    assert result.code == 2
    assert "none.yaml" in result.err


def test_diff(source: Path) -> None:
    assert cloudtrain("submit", "job.yaml", "--name", "first", cwd=source).code == 0
    same = cloudtrain("submit", "job.yaml", "--diff", "first", cwd=source)
    assert (same.code, same.out) == (0, "No differences from first\n")
    shown = cloudtrain(
        "submit", "job.yaml", "--diff", "first", "--set", "hyperparameters.lr=0.2", "--", "--epochs", "3",
        cwd=source,
    )  # fmt: skip
    assert shown.out.splitlines() == [
        "--- first",
        "+++ this submission",
        '+ arguments: ["--epochs", "3"]',
        "- hyperparameters.lr: 0.1",
        "+ hyperparameters.lr: 0.2",
    ]
    (source / "train.py").write_text("print('changed')\n")
    paths = [change["path"] for change in _diff(source, "first")]
    assert "settings.source_sha256" in paths
    assert [job["name"] for job in cloudtrain("list", "--json", cwd=source).json] == ["first"]


def test_diff_with_a_job_that_does_not_exist(source: Path) -> None:
    result = cloudtrain("submit", "job.yaml", "--diff", "none", cwd=source)
    assert result.code == 1
    assert "none" in result.err


def _diff(source: Path, job: str) -> Any:
    return json.loads(cloudtrain("submit", "job.yaml", "--diff", job, "--json", cwd=source).out)
