"""``cloudtrain examples``, and the examples: the commands of their READMEs reach the accuracy that these state."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest
from command import cloudtrain
from documents import REPOSITORY, Reader, band_of, read_blocks, runs_something
from end_of_run import find_python
from pages import parametrize_pages

pytestmark = pytest.mark.timeout(400)

KERAS = ("cifar_keras", "cats_and_dogs")
TENSORFLOW = find_python("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow")
MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
}
LEFT_OUT = "TensorFlow is not installed; ./scripts/build_tensorflow does it, in two minutes"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "tensorflow_page", ["docs/guides/tensorflow.md"])


@pytest.fixture(autouse=True)
def _cloudtrain_for_every_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(REPOSITORY))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def tensorflow_python() -> str:
    if TENSORFLOW is None and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        pytest.skip(LEFT_OUT)
    assert TENSORFLOW, LEFT_OUT
    return TENSORFLOW


def accuracies_in(printed: list[str]) -> list[float]:
    """The accuracy in the last line of each training."""
    return [
        float(one)
        for one in re.findall(r"trained (?:\d+ epochs|on \d+ ranks).*accuracy=([0-9.]+)", "".join(printed))
    ]


def follow(name: str, folder: Path, python: str = sys.executable) -> list[float]:
    """Run the commands of an example's README in a copy, and return the accuracies of its trainings."""
    assert cloudtrain("examples", name, ".", cwd=folder).code == 0
    reader = Reader(folder, python)
    try:
        reader.follow(REPOSITORY / "examples" / name / "README.md")
    finally:
        reader.end()
    return accuracies_in(reader.printed)


@pytest.mark.soak  # in CI, the demo runs it on two hosts
def test_digits_pytorch(tmp_path: Path) -> None:
    alone, job = follow("digits_pytorch", tmp_path)
    low, high = band_of("digits_pytorch")
    assert low <= min(alone, job) <= max(alone, job) <= high


@pytest.mark.soak
@pytest.mark.parametrize("name", KERAS)
def test_keras(name: str, tensorflow_python: str, tmp_path: Path) -> None:
    select_python(tensorflow_python)
    alone, job = follow(name, tmp_path, tensorflow_python)
    low, high = band_of(name)
    assert low <= min(alone, job) <= max(alone, job) <= high


@pytest.mark.soak
def test_gluon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = find_python("CLOUDTRAIN_MXNET_PYTHON", "mxnet")
    assert python, "MXNet is not installed; ./scripts/build_mxnet does it, in a minute"
    for name, value in MPI.items():
        monkeypatch.setenv(name, value)
    select_python(python)
    one, two, job = follow("gluon_mxnet", tmp_path, python)
    low, high = band_of("gluon_mxnet")
    assert low <= min(one, two, job) <= max(one, two, job) <= high
    assert max(abs(one - two), abs(one - job)) <= 0.01


def test_kubernetes(tmp_path: Path) -> None:
    follow("kubernetes", tmp_path)


def select_python(python: str) -> None:
    """Make it the default of all jobs."""
    config = Path(os.environ["XDG_CONFIG_HOME"], "cloudtrain", "config.yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"platform_options": {"python": python}}))


def test_every_example_has_what_its_list_shows(tmp_path: Path) -> None:
    """The README of each has a title, what it needs, how long it takes, and a command with its output."""
    listed = {one["name"]: one for one in json.loads(cloudtrain("examples", "--json", cwd=tmp_path).out)}
    folders = {path.name for path in (REPOSITORY / "examples").iterdir() if path.is_dir()}
    assert set(listed) == folders
    assert [name for name, one in listed.items() if not all(one.values())] == []
    for name in folders:
        assert runs_something(REPOSITORY / "examples" / name / "README.md"), name


def test_an_example_is_copied_once_and_never_over_other_files(tmp_path: Path) -> None:
    copied = cloudtrain("examples", "xgboost", "my trees", cwd=tmp_path)
    assert copied.out.splitlines() == ["my trees/README.md", "my trees/train.py", "my trees/train.yaml"]
    assert copied.err.endswith("How to run it: 'my trees/README.md'\n")
    (tmp_path / "my trees" / "README.md").unlink()
    again = cloudtrain("examples", "xgboost", "my trees", cwd=tmp_path)
    assert (again.code, again.out) == (2, "")
    assert "my trees/train.py exists already. Name another folder, or remove it." in again.err
    assert not (tmp_path / "my trees" / "README.md").exists()


def test_an_example_that_does_not_exist_and_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    unknown = cloudtrain("examples", "xgbost", cwd=tmp_path)
    assert (unknown.code, "No such example: 'xgbost'. Did you mean 'xgboost'?" in unknown.err) == (2, True)
    (tmp_path / "file").write_text("")
    refused = cloudtrain("examples", "xgboost", "file/here", cwd=tmp_path)
    assert refused.code == 1
    assert (
        refused.err
        == "Error: file/here/README.md cannot be written: Not a directory\n  Name another folder.\n"
    )


@pytest.mark.parametrize("name, printed", [("train.py", "2 ranks, loss 0."), ("tape.py", "rank 0: loss 0.0")])
def test_the_scripts_of_the_tensorflow_page(
    tensorflow_page: str, name: str, printed: str, tensorflow_python: str, tmp_path: Path
) -> None:
    scripts = {block.file_name: block.text for block in read_blocks(REPOSITORY / tensorflow_page)}
    (tmp_path / name).write_text(scripts[name])
    python = f"platform_options.python={tensorflow_python}"
    job = cloudtrain("submit", name, "--processes-per-host", "2", "--set", python, cwd=tmp_path, timeout=200)
    assert (job.code, printed in job.out) == (0, True), job.out + job.err
