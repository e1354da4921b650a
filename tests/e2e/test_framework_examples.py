"""The examples with other frameworks: their ranks, on two hosts of this machine, work together."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from command import cloudtrain
from documents import REPOSITORY, Reader
from end_of_run import find_python
from pages import PASSED, lock_line, passed_before

pytestmark = pytest.mark.timeout(300)

FRAMEWORKS = ("CLOUDTRAIN_FRAMEWORKS_PYTHON", "frameworks")
DEEPSPEED = ("CLOUDTRAIN_DEEPSPEED_PYTHON", "deepspeed")
TENSORFLOW = ("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow")


@dataclass(frozen=True)
class Example:
    """An example, the line that each of its ranks prints, and the file that is its model.

    In the line, ``rank`` is another on each rank; ``same`` is the same on all; and ``accuracy`` is at least 0.85.
    """

    folder: str
    line: str
    model: str
    environment: tuple[str, str] = FRAMEWORKS

    @property
    def page(self) -> str:
        return f"examples/{self.folder}/README.md"


EXAMPLES = [
    Example(
        "jax",
        r"process (?P<rank>\d) of 2: 128 rows, sum 3, weights (?P<same>\[1.0, -2.0, 3.0\])",
        "weights.npy",
    ),
    Example(
        "xgboost",
        r"rank (?P<rank>\d) of 2: trees (?P<same>\w{8}) of 455 rows, accuracy=(?P<accuracy>\S+)",
        "model.json",
    ),
    Example(
        "transformers",
        r"rank (?P<rank>\d) of 2: 48 steps on cpu\S*, weights (?P<same>\w{8}), accuracy=(?P<accuracy>\S+)",
        "model.safetensors",
    ),
    Example(
        "accelerate",
        r"rank (?P<rank>\d) of 2: 2048 of 4096 rows on cpu\S*, weights (?P<same>.*), difference 0e\+00",
        "model.pt",
    ),
    Example(
        "deepspeed",
        r"rank (?P<rank>\d) of 2: 2048 of 4096 rows on cpu, weights (?P<same>\[1.0, -2.0, 3.0, 0.0\] \w{8})",
        "checkpoint/latest",
        DEEPSPEED,
    ),
    Example(
        "tensorflow",
        r"worker (?P<rank>\d) of 2: weights (?P<same>\w{8}), accuracy=(?P<accuracy>\S+)",
        "model.keras",
        TENSORFLOW,
    ),
    Example(
        "lightning",
        r"rank (?P<rank>\d) of 2: 92 steps on cpu\S*, weights (?P<same>\w{8}), accuracy=(?P<accuracy>\S+)",
        "model.pt",
    ),
]

SOAK = ("deepspeed", "tensorflow")
"""DeepSpeed takes long to install; test_tensorflows_strategies.py runs the strategy in CI."""
LARGE = ("transformers", "accelerate", "lightning")
"""Each takes as much CPU as a hundred other tests."""


@pytest.fixture(autouse=True)
def _variables_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def select(environment: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this environment's Python the default of all jobs."""
    python = find_python(*environment)
    why = f"{environment[1]} is not installed: ./scripts/build_{environment[1]}"
    if python is None and os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        pytest.skip(why)
    assert python, why
    folder = Path(python).parents[1].resolve()  # for other paths, DeepSpeed would compile its operator again
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(folder / "torch_extensions"))
    config = Path(os.environ["XDG_CONFIG_HOME"], "cloudtrain", "config.yaml")
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"platform_options": {"python": str(folder / "bin" / "python")}}))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """As for a page of the documentation: CI runs a large example if it has changed, and a soak always."""
    if "example" in metafunc.fixturenames:
        everything = metafunc.config.getoption("--soak")
        rows = []
        for example in EXAMPLES:
            in_soak = example.folder in LARGE and (everything or passed_before(example.page))
            marks = [pytest.mark.soak] * (in_soak or example.folder in SOAK)
            rows.append(pytest.param(example, id=example.folder, marks=marks))
        metafunc.parametrize("example", rows)


def test_the_ranks_of_an_example_work_together(
    example: Example,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    select(example.environment, monkeypatch)
    assert cloudtrain("examples", example.folder, ".", cwd=tmp_path).code == 0
    printed = Reader(tmp_path).follow_command(REPOSITORY / example.page, "submit")

    lines = list(re.finditer(rf"^\[rank (?P<printed_by>\d)\] {example.line}$", printed, re.MULTILINE))
    assert sorted(line["printed_by"] for line in lines) == ["0", "1"], printed
    assert all(line["rank"] == line["printed_by"] for line in lines), printed
    assert len({line["same"] for line in lines}) == 1, printed
    found = [line.groupdict() for line in lines]
    assert all(float(line.get("accuracy", 1)) >= 0.85 for line in found), printed
    job = Path(os.environ["CLOUDTRAIN_HOME"], "jobs", "local", f"by-{example.folder}")
    with tarfile.open(job / "output" / "model.tar.gz") as model:
        assert example.model in model.getnames()
    record_property(PASSED, lock_line(example.page))


def test_the_rank_that_failed_is_named_although_others_fail_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """XGBoost on rank 0 raises another error when rank 1 leaves the group."""
    select(FRAMEWORKS, monkeypatch)
    script = (REPOSITORY / "examples/xgboost/train.py").read_text()
    fails = '    if rank == 1:\n        raise ValueError("the last row has no label")\n    right = '
    assert script.count("    right = ") == 1
    (tmp_path / "train.py").write_text(script.replace("    right = ", fails))
    shutil.copy(REPOSITORY / "examples/xgboost/train.yaml", tmp_path)
    job = cloudtrain("submit", "train.yaml", "--name", "fails", cwd=tmp_path)
    assert job.code == 1, job.out + job.err
    assert "rank 1 on algo-2 raised ValueError: the last row has no label" in job.err
    assert re.search(r'File ".*/train.py", line \d+, in <module>\n    raise ValueError', job.err)
    assert processes_in(os.environ["CLOUDTRAIN_HOME"]) == []


@pytest.mark.soak
def test_deepspeed_without_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    select(DEEPSPEED, monkeypatch)
    shutil.copy(REPOSITORY / "examples/deepspeed/train.py", tmp_path)
    job = cloudtrain("submit", "train.py", cwd=tmp_path)
    assert (job.code, "DeepSpeed found no variable RANK." in job.err) == (1, True), job.err


@pytest.mark.soak
@pytest.mark.parametrize(
    ("folder", "option", "first", "then", "steps"),
    [("transformers", "num_train_epochs", 1, 3, "16 48 48"), ("lightning", "epochs", 1, 4, "23 92 92")],
)
def test_a_later_job_resumes_from_the_last_checkpoint(
    folder: str,
    option: str,
    first: int,
    then: int,
    steps: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The third job finds a complete checkpoint, and trains no further: its weights are those of the second."""
    select(FRAMEWORKS, monkeypatch)
    example = shutil.copytree(REPOSITORY / "examples" / folder, tmp_path / folder)
    uri = f"checkpoint_s3_uri={(tmp_path / 'checkpoints').as_uri()}"
    ends = []
    for epochs in (first, then, then):
        options = ("--set", f"hyperparameters.{option}={epochs}", "--set", uri)
        job = cloudtrain("submit", "train.yaml", *options, cwd=example, timeout=200)
        assert job.code == 0, job.out + job.err
        ends += re.findall(r"rank 0 of 2: (\d+) steps .*weights (\w{8})", job.out)
    assert " ".join(count for count, _ in ends) == steps
    assert ends[1] == ends[2]


def processes_in(folder: str) -> list[int]:
    """The processes of jobs whose folders are in ``folder``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if b"SM_MODEL_DIR=" in (text := path.read_bytes()) and folder.encode() in text:
                found.append(int(path.parent.name))
    return found
