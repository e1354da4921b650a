"""The command line with the platform ``sagemaker``: from submit to download, failures, and a stop."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import CLOUDTRAIN, cloudtrain
from simulated import IMAGE, ROLE, SimulatedSageMaker
from simulation import simulated_sagemaker

from cloudtrain.testing import S3Server

SCRIPT = """
import os, signal, sys, time

def leave(number, frame):
    print("leaves", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, leave)
rank = os.environ["RANK"]
print("begins", flush=True)
if "--fail" in sys.argv and rank == "1":
    raise ValueError("a bad batch")
if "--sleep" in sys.argv:
    time.sleep(600)
open(os.environ["SM_MODEL_DIR"] + "/weights-" + rank, "w").write("w")
"""


@pytest.fixture
def sagemaker(s3_server: S3Server, tmp_path: Path) -> Iterator[SimulatedSageMaker]:
    with simulated_sagemaker(s3_server, tmp_path) as simulated:
        yield simulated


@pytest.fixture
def here(sagemaker: SimulatedSageMaker, tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "job.yaml").write_text(
        f"entry_point: train.py\nsource_dir: .\nimage_uri: {IMAGE}\nrole: {ROLE}\n"
        "instance_type: ml.m5.xlarge\ninstance_count: 2\ndistribution: {processes: {}}\n"
        f"output_path: s3://{sagemaker.bucket}/out\ncode_location: s3://{sagemaker.bucket}/code\n"
    )
    return folder


def test_from_submit_to_download(sagemaker: SimulatedSageMaker, here: Path) -> None:
    done = cloudtrain("submit", "job.yaml", "--name", "first", cwd=here)
    assert done.code == 0, done.err
    assert sorted(line for line in done.out.splitlines() if "begins" in line) == [
        "[rank 0] begins",
        "[rank 1] begins",
    ]
    described = cloudtrain("describe", "first", "--json", cwd=here).json
    assert (described["status"], described["platform"]) == ("Completed", "sagemaker")
    assert described["model_data"] == f"s3://{sagemaker.bucket}/out/first/output/model.tar.gz"
    assert "first" in cloudtrain("list", cwd=here).out
    assert cloudtrain("logs", "first", cwd=here).out == done.out
    assert cloudtrain("download", "first", "--to", "got", cwd=here).code == 0
    assert (here / "got" / "model.tar.gz").exists()


def test_a_failure_names_the_rank(sagemaker: SimulatedSageMaker, here: Path) -> None:
    done = cloudtrain("submit", "job.yaml", "--name", "fails", "--set", "hyperparameters.fail=1", cwd=here)
    assert done.code != 0
    assert "rank 1 on algo-2 raised ValueError: a bad batch" in done.err
    assert "train.py" in done.err
    assert "Traceback" not in done.err.partition("a bad batch")[0]


def test_a_stop_reaches_the_script(sagemaker: SimulatedSageMaker, here: Path) -> None:
    sleeping = ["submit", "job.yaml", "--name", "stops", "--set", "hyperparameters.sleep=1"]
    with subprocess.Popen([CLOUDTRAIN, *sleeping], cwd=here, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert "begins" in process.stdout.readline()
        assert cloudtrain("stop", "stops", cwd=here).code == 0
        assert process.stdout.read().count("leaves") == 2
    assert cloudtrain("describe", "stops", "--json", cwd=here).json["status"] == "Stopped"
