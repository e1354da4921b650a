"""The examples reach the accuracy that their pages state: on two ranks, as plain scripts, and with Keras."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import cloudtrain
from documents import REPOSITORY, band_of, read_blocks
from end_of_run import find_python
from pages import parametrize_pages

pytestmark = pytest.mark.timeout(400)

KERAS = ("cifar_keras", "cats_and_dogs")
TENSORFLOW = find_python("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow")
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


def copy(example: str, folder: Path) -> Path:
    """A copy of an example, without the rest of the repository."""
    return shutil.copytree(REPOSITORY / "examples" / example, folder / example)


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def accuracy_of(printed: str) -> float:
    """The accuracy in the last line of the output."""
    [found] = re.findall(r"trained \d+ epochs.*accuracy=([0-9.]+)", printed)
    return float(found)


@pytest.mark.soak  # in CI, the demo runs it on two hosts
def test_digits_pytorch_on_two_ranks(tmp_path: Path) -> None:
    example = copy("digits_pytorch", tmp_path)
    low, high = band_of(example)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    assert low <= accuracy_of(run(*torchrun, "train.py", cwd=example)) <= high


@pytest.mark.soak
def test_digits_pytorch_alone(tmp_path: Path) -> None:
    example = copy("digits_pytorch", tmp_path)
    low, high = band_of(example)
    assert low <= accuracy_of(run(sys.executable, "train.py", cwd=example)) <= high


@pytest.mark.soak
@pytest.mark.parametrize("name", KERAS)
def test_keras_on_two_ranks(name: str, tensorflow_python: str, tmp_path: Path) -> None:
    example = copy(name, tmp_path)
    low, high = band_of(example)
    run(
        tensorflow_python, "make_data.py", "../data", cwd=example
    )  # outside the source, so that it is not packed
    job = cloudtrain(
        "submit",
        "train.yaml",
        "--input",
        f"train={(tmp_path / 'data').as_uri()}",
        "--set",
        f"platform_options.python={tensorflow_python}",
        cwd=example,
        timeout=300,
    )
    assert job.code == 0, job.out + job.err
    assert "ranks=2" in job.out
    assert low <= accuracy_of(job.out) <= high


@pytest.mark.soak
@pytest.mark.parametrize("name", KERAS)
def test_keras_alone(name: str, tensorflow_python: str, tmp_path: Path) -> None:
    example = copy(name, tmp_path)
    low, high = band_of(example)
    run(tensorflow_python, "make_data.py", "data", cwd=example)
    options = re.findall(r"^    python train.py(.*)", (example / "README.md").read_text(), re.MULTILINE)
    alone = run(tensorflow_python, "train.py", *options[0].split(), cwd=example)
    assert low <= accuracy_of(alone) <= high


@pytest.mark.parametrize("name, printed", [("train.py", "2 ranks, loss 0."), ("tape.py", "rank 0: loss 0.0")])
def test_the_scripts_of_the_tensorflow_page(
    tensorflow_page: str, name: str, printed: str, tensorflow_python: str, tmp_path: Path
) -> None:
    scripts = {block.file_name: block.text for block in read_blocks(REPOSITORY / tensorflow_page)}
    (tmp_path / name).write_text(scripts[name])
    python = f"platform_options.python={tensorflow_python}"
    job = cloudtrain("submit", name, "--processes-per-host", "2", "--set", python, cwd=tmp_path, timeout=200)
    assert (job.code, printed in job.out) == (0, True), job.out + job.err
