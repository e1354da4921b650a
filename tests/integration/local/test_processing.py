"""Processing jobs: a script reads and writes the folders that its processor names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from cloudtrain.sagemaker.processing import (
    FrameworkProcessor,
    ProcessingInput,
    ProcessingOutput,
    ScriptProcessor,
)
from cloudtrain.sagemaker.sklearn.processing import SKLearnProcessor

from cloudtrain import PyTorch, TrainingFailed
from cloudtrain.errors import InvalidJob
from cloudtrain.storage import open_store

SPLIT = """
import os, pathlib, sys
rows = sorted(pathlib.Path("/opt/ml/processing/input").glob("*.csv"))
train = pathlib.Path("/opt/ml/processing/train")
(train / f"{os.environ['SM_CURRENT_HOST']}.txt").write_text(" ".join(path.name for path in rows))
print("arguments", sys.argv[1:], os.environ["LEVEL"])
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("split.py").write_text(SPLIT)
    Path("data").mkdir()
    for name in "abcd":
        Path(f"data/{name}.csv").write_text(name)
    return tmp_path


def _input(**fields: str) -> ProcessingInput:
    return ProcessingInput("data", "/opt/ml/processing/input", **fields)


def test_each_host_reads_its_part_and_uploads_its_output(
    here: Path, s3: str, capsys: pytest.CaptureFixture[str]
) -> None:
    processor = SKLearnProcessor("1.2-1", instance_count=2, env={"LEVEL": "1"}, platform="local")
    processor.run(
        "split.py",
        inputs=[_input(s3_data_distribution_type="ShardedByS3Key")],
        outputs=[ProcessingOutput("/opt/ml/processing/train", f"s3://{s3}/train", "train")],
        arguments=["--ratio", "0.5"],
    )
    assert capsys.readouterr().out.count("arguments ['--ratio', '0.5'] 1") == 2
    found = open_store(f"s3://{s3}/train")
    names = [found.read(f"algo-{host}.txt").decode().split() for host in (1, 2)]
    assert sorted(names[0] + names[1]) == ["a.csv", "b.csv", "c.csv", "d.csv"]
    assert all(len(part) == 2 for part in names)
    assert processor.latest_job is not None
    described = processor.latest_job.describe()
    assert described["ProcessingJobStatus"] == "Completed"
    [output] = described["ProcessingOutputConfig"]["Outputs"]
    assert (output["OutputName"], output["S3Output"]["S3Uri"]) == ("train", f"s3://{s3}/train")


def test_an_output_without_a_destination_is_one_of_the_job(here: Path) -> None:
    (here / "source").mkdir()
    (here / "source/helper.py").write_text("NAME = 'result.txt'")
    script = "import helper\nopen('/opt/ml/processing/out/' + helper.NAME, 'w').write('done')"
    (here / "source/main.py").write_text(script)
    processor = FrameworkProcessor(PyTorch, "2.5.1", py_version="py311", platform="local")
    processor.run(
        "main.py", source_dir="source", outputs=[ProcessingOutput("/opt/ml/processing/out")], logs=False
    )
    assert processor.latest_job is not None
    [output] = processor.latest_job.describe()["ProcessingOutputConfig"]["Outputs"]
    assert open_store(output["S3Output"]["S3Uri"]).read("result.txt") == b"done"


def test_a_failure_is_that_of_the_script_and_nothing_is_uploaded(here: Path) -> None:
    Path("fail.py").write_text("open('/opt/ml/processing/out/x', 'w')\nraise ValueError('no rows')")
    processor = ScriptProcessor(platform="local")
    outputs = [ProcessingOutput("/opt/ml/processing/out", (here / "uploaded").as_uri())]
    with pytest.raises(TrainingFailed, match="ValueError: no rows"):
        processor.run("fail.py", outputs=outputs, logs=False)
    assert not (here / "uploaded").exists()
    assert processor.latest_job is not None
    assert "no rows" in processor.latest_job.describe()["FailureReason"]


@pytest.mark.parametrize("status", [0, 3])
def test_another_interpreter_runs_the_script(here: Path, status: int) -> None:
    Path("run.sh").write_text(f"echo $1 > /opt/ml/processing/out/said\nexit {status}\n")
    processor = ScriptProcessor(command=["sh"], platform="local")
    outputs = [ProcessingOutput("/opt/ml/processing/out", (here / "uploaded").as_uri())]
    if status:
        with pytest.raises(TrainingFailed, match="exit"):
            processor.run("run.sh", outputs=outputs, arguments=["hello"], logs=False)
        assert not (here / "uploaded").exists()
        return
    processor.run("run.sh", outputs=outputs, arguments=["hello"], logs=False)
    assert (here / "uploaded/said").read_text() == "hello\n"


@pytest.mark.parametrize(
    ("code", "inputs", "message"),
    [
        ("missing.py", [], "code: there is no file missing.py"),
        ("split.py", [ProcessingInput("data")], r"inputs\[0\]: needs source and destination"),
        (
            "split.py",
            [ProcessingInput("data", "/tmp/x")],
            r"inputs\[0\]: /tmp/x is not below /opt/ml/processing",
        ),
        ("split.py", [ProcessingInput("data", "/opt/ml/processing/../x")], "is not below"),
        ("split.py", [ProcessingInput("nothing", "/opt/ml/processing/x")], "no file or folder nothing"),
    ],
)
def test_what_is_refused(here: Path, code: str, inputs: list[ProcessingInput], message: str) -> None:
    with pytest.raises(InvalidJob, match=message):
        ScriptProcessor(command=[sys.executable], platform="local").run(code, inputs=inputs)
