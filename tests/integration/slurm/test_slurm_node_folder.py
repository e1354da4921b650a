"""A job on Slurm whose hosts work on the disks of their nodes, and read their data from the shared file system."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from slurm_cluster import Configuration, SlurmCluster
from slurm_fixtures import SlurmOf
from slurm_jobs import number_of, queue_is_empty, submit, wait_for_line, wait_until

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.errors import TrainingFailed

TASK_FOLDERS = "cloudtrain-*.*"
"""The folder with the unpacked runtime stays, for later jobs: cloudtrain-UID-HASH."""

SCRIPT = """
import json, os, sys
from cloudtrain import environment

channel = os.environ["SM_CHANNEL_TRAIN"]
print("at", json.dumps([os.environ["SM_MODEL_DIR"], os.path.realpath(channel)]), flush=True)
print("loss=0.5", flush=True)
if os.environ["RANK"] == "1":
    raise ValueError(open(channel + "/why").read())
"""


@pytest.fixture
def failed(slurm: SlurmCluster, tmp_path: Path) -> Job:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "why").write_text("as the data say")
    job = Estimator(
        str(tmp_path / "train.py"),
        platform="slurm",
        instance_count=2,
        distribution={"processes": {"processes_per_host": 1}},
        metric_definitions=[{"Name": "loss", "Regex": r"loss=([0-9.]+)"}],
        platform_options={"node_folder": str(tmp_path / "disk")},
    ).fit({"train": (tmp_path / "data").as_uri()}, wait=False, job_name="on-disks")
    with pytest.raises(TrainingFailed) as caught:
        job.wait()
    assert (caught.value.failure.exception_type, caught.value.failure.message) == (
        "ValueError",
        "as the data say",
    )
    return job


def test_code_and_model_are_on_the_node_and_data_are_linked(failed: Job, tmp_path: Path) -> None:
    shown = [json.loads(line.partition("at ")[2]) for line in failed.logs().splitlines() if "] at " in line]
    assert len(shown) == 2
    for model, channel in shown:
        assert model.startswith(f"{tmp_path}/disk/cloudtrain-")
        assert channel == str(tmp_path / "data")
    assert list((tmp_path / "disk").iterdir()) == []  # nothing is left there
    described = failed.describe()
    assert described.metrics == {"loss": 0.5}
    assert described.failure and described.failure.host == "127.0.0.3"
    hosts = Path(described.place) / "hosts"
    assert "loss=0.5" in (hosts / "127.0.0.3" / "output" / "logs" / "rank-1.log").read_text()
    assert not list(hosts.rglob("secret"))


def test_a_folder_that_a_node_does_not_have(slurm: SlurmCluster, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = {"node_folder": "$NOWHERE/jobs"}
    job = Estimator(str(tmp_path / "train.py"), platform="slurm", platform_options=options).fit(wait=False)
    with pytest.raises(TrainingFailed, match="the variable NOWHERE is not set on"):
        job.wait()


def test_a_job_of_another_cluster_with_the_same_number_keeps_its_files(
    slurm_of: SlurmOf, tmp_path: Path
) -> None:
    clusters = {name: slurm_of(Configuration(nodes=nodes)) for name, nodes in (("one", 2), ("other", 3))}
    disk = {"platform_options": {"node_folder": str(tmp_path / "disk"), "requeue": "never"}}
    jobs, numbers = {}, {name: cluster.submit("true", "--hold") for name, cluster in clusters.items()}
    for name, cluster in clusters.items():
        while numbers[name] < max(numbers.values()):
            numbers[name] = cluster.submit("true", "--hold")
    for name, configuration in (("one", Configuration(nodes=2)), ("other", Configuration(nodes=3))):
        slurm_of(configuration)
        jobs[name] = submit(tmp_path, "import time\nprint('up', flush=True)\ntime.sleep(600)", name, **disk)
        wait_for_line(jobs[name], "up", 2)
    assert number_of(jobs["one"]) == number_of(jobs["other"])
    assert len(list((tmp_path / "disk").glob(TASK_FOLDERS))) == 4
    jobs["other"].stop()
    wait_until(lambda: not clusters["other"]("squeue", "-h", "--states=R,CG"), "the end of the job")
    assert len(list((tmp_path / "disk").glob(TASK_FOLDERS))) == 2
    slurm_of(Configuration(nodes=2))
    assert jobs["one"].status == JobStatus.RUNNING


@pytest.mark.parametrize("signal", [["--signal=KILL"], []], ids=["killed", "cancelled"])
def test_a_killed_job_leaves_nothing_on_its_nodes(
    slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, signal: list[str]
) -> None:
    places = [tmp_path / "tmp", tmp_path / "a disk"]
    places[0].mkdir()
    monkeypatch.setenv("TMPDIR", str(places[0]))
    monkeypatch.setenv("DISK", "a disk")
    for number, options in enumerate(({}, {"node_folder": f"{tmp_path}/$DISK"})):
        job = submit(tmp_path, "import time\nprint('up', flush=True)\ntime.sleep(600)", f"job-{number}",
                     platform_options={"requeue": "never", **options})  # fmt: skip
        wait_for_line(job, "up", 2)
        assert len(list(places[number].glob(TASK_FOLDERS))) == 2
        slurm("scancel", *signal, str(number_of(job)))
        wait_until(lambda: queue_is_empty(slurm), "the end of the job")
        wait_until(lambda folder=places[number]: not list(folder.glob(TASK_FOLDERS)), "an empty folder")
