"""``cloudtrain init``: the job that it writes trains as it is."""

from __future__ import annotations

import json
import os
import re
import tarfile
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from command import cloudtrain
from end_of_run import find_python
from pages import PASSED, lock_line, passed_before

from cloudtrain.cli.init import FRAMEWORKS, PACKAGES

ENVIRONMENTS = {
    "keras": ("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow"),
    "lightning": ("CLOUDTRAIN_FRAMEWORKS_PYTHON", "frameworks"),
    "transformers": ("CLOUDTRAIN_FRAMEWORKS_PYTHON", "frameworks"),
}
"""Frameworks with their own environments."""
MODELS = {"keras": "model.keras", "transformers": "model.safetensors"}


def starter(framework: str) -> str:
    return f"cloudtrain/cli/starters/{framework}.py"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """CI runs a framework if its script has changed. Each takes as much CPU as a hundred tests."""
    if "framework" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--soak")
        rows = []
        for name in FRAMEWORKS:
            in_soak = everything or passed_before(starter(name))
            rows.append(pytest.param(name, marks=[pytest.mark.soak] * in_soak))
        metafunc.parametrize("framework", rows)


def options(framework: str) -> list[str]:
    """The options that select the Python of a framework."""
    if framework not in ENVIRONMENTS:
        return []
    python = find_python(*ENVIRONMENTS[framework])
    why = f"{framework} is not installed: ./scripts/build_{ENVIRONMENTS[framework][1]}"
    if python is None and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        pytest.skip(why)
    assert python, why
    return ["--set", f"platform_options.python={Path(python).parents[1].resolve() / 'bin' / 'python'}"]


@pytest.mark.timeout(300)
def test_the_job_trains(
    framework: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    made = cloudtrain("init", "first job", "--framework", framework, cwd=tmp_path)
    assert (made.code, made.out.split("\n")[0]) == (0, "first job/train.yaml"), made.err
    assert "cd 'first job' && cloudtrain submit train.yaml" in made.err
    assert "for a machine without a GPU, see src/requirements.txt" in made.err
    folder = tmp_path / "first job"
    requirements = folder / "src" / "requirements.txt"
    if framework == "keras":  # the environment of the tests has TensorFlow under this name
        requirements.write_text(requirements.read_text().replace("tensorflow>", "tensorflow-cpu>"))
    job = cloudtrain("submit", "train.yaml", "--name", "first", *options(framework), cwd=folder)
    assert job.code == 0, job.out + job.err
    losses = [
        float(loss)
        for loss in re.findall(r"\bloss'?[=:] '?(\d\S*?)[',\s]", job.out.replace("loss=", "loss= "))
    ]
    assert len(losses) >= 10, job.out
    assert losses[-1] < losses[0] / 2
    assert "[rank 1] epoch" not in job.out, "rank 0 prints"
    output = Path(os.environ["CLOUDTRAIN_HOME"], "jobs", "local", "first", "output", "model.tar.gz")
    with tarfile.open(output) as model:
        assert MODELS.get(framework, "model.pt") in model.getnames()
    record_property(PASSED, lock_line(starter(framework)))


def test_no_file_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "train.py").write_text("mine")
    made = cloudtrain("init", ".", cwd=tmp_path)
    assert (made.code, made.out) == (2, "")
    assert "src/train.py exists already. Name another folder, or remove it." in made.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["src", "train.py"]
    assert (tmp_path / "src" / "train.py").read_text() == "mine"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = cloudtrain("init", "file/job", cwd=tmp_path)
    assert made.code == 1
    assert (
        made.err == "Error: file/job/train.yaml cannot be written: Not a directory\n  Name another folder.\n"
    )


@pytest.mark.parametrize("arguments, advice", {
    "no folder": ([], "Missing argument 'FOLDER'.\n  For example: cloudtrain init first\n"),
    "another name": (["job", "--framework", "PyTorch"], "Did you mean 'torch'?\n"),
    "another framework": (["job", "--framework", "jax"], "For another one: cloudtrain examples\n"),
}.values())  # fmt: skip
def test_an_error_names_the_next_step(arguments: list[str], advice: str, tmp_path: Path) -> None:
    made = cloudtrain("init", *arguments, cwd=tmp_path)
    assert (made.code, made.out) == (2, "")
    assert made.err.endswith(advice)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize("written", FRAMEWORKS)
def test_doctor_lists_what_the_job_installs(written: str, tmp_path: Path) -> None:
    """In an environment that has none of it, as after an installation of cloudtrain alone."""
    venv.create(tmp_path / "empty", symlinks=True)
    made = cloudtrain("init", "job", "--framework", written, cwd=tmp_path)
    python = tmp_path / "empty" / "bin" / "python"
    chosen = ["--set", f"platform_options.python={python}", "--json"]
    found = cloudtrain("doctor", "train.yaml", *chosen, cwd=tmp_path / "job")
    findings = {row["name"]: row for row in json.loads(found.out)}
    assert {row["outcome"] for row in findings.values()} == {"ok"}, (
        "nothing that the script imports is forgotten"
    )
    what = findings["requirements"]["what"]
    assert what == f"the job installs {', '.join(PACKAGES[written])}, which {python} lacks"
    assert all(package in made.err for package in PACKAGES[written])


def test_the_files_as_json(tmp_path: Path) -> None:
    made = json.loads(cloudtrain("init", "job", "--framework", "keras", "--json", cwd=tmp_path).out)
    assert made == {
        "folder": "job",
        "framework": "keras",
        "files": ["job/train.yaml", "job/src/train.py", "job/src/requirements.txt", "job/data/train.csv"],
    }
