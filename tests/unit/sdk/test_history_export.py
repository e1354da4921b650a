"""Jobs and metrics for other programs."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from test_history import make_job

from cloudtrain import history
from cloudtrain.cli.export import command
from cloudtrain.contract import JobStatus
from cloudtrain.errors import JobNotFound
from cloudtrain.history.export import choose, to_mlflow
from cloudtrain.history.past_job import PastJob
from cloudtrain.index import IndexEntry, add_job, remove_job
from cloudtrain.runtime.supervisor.folder import JobFolder


@pytest.fixture(autouse=True)
def jobs() -> None:
    make_job("slow", [0.9, 0.2, 0.5], 0.01, submitted_at=10.0, arguments=["--tag", "=cmd()", "--key-token=k"])
    make_job("fast", [0.8, 0.4], 0.1, submitted_at=20.0)


def export(*arguments: str | Path) -> Result:
    result = CliRunner().invoke(command, [*map(str, arguments)])
    assert result.exit_code == 0, result.exception
    return result


def test_a_folder_gets_two_tables(tmp_path: Path) -> None:
    assert export("--to", tmp_path / "out").output.split() == [
        str(tmp_path / "out" / "jobs.csv"),
        str(tmp_path / "out" / "metrics.csv"),
    ]
    fast, slow = csv.DictReader((tmp_path / "out" / "jobs.csv").open())
    assert (fast["name"], fast["params.lr"], fast["metrics.loss.min"]) == ("fast", "0.1", "0.4")
    assert (slow["params.tag"], slow["params.key-token"], slow["metrics.loss"]) == ("'=cmd()", "***", "0.5")
    points = [*csv.DictReader((tmp_path / "out" / "metrics.csv").open())]
    assert [(one["job"], one["step"], one["value"]) for one in points if one["job"] == "slow"] == [
        ("slow", "0", "0.9"),
        ("slow", "1", "0.2"),
        ("slow", "2", "0.5"),
    ]


def test_the_ending_of_a_file_may_have_capitals(tmp_path: Path) -> None:
    export("--to", tmp_path / "o.CSV")
    assert (tmp_path / "o.CSV").read_text().startswith("name,")
    export("--to", tmp_path / "o.Parquet")
    assert (tmp_path / "o.Parquet").read_bytes()[:4] == b"PAR1"


def points_of(folder: Path) -> list[tuple[str, str]]:
    export("--to", folder)
    return [(one["submitted_at"], one["value"]) for one in csv.DictReader((folder / "metrics.csv").open())]


def test_a_job_never_gets_the_values_of_another_one_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history.query()
    remove_job("slow", "local")
    shutil.rmtree(JobFolder.of("local", "slow").path)
    remove_job("fast", "local")
    shutil.rmtree(JobFolder.of("local", "fast").path)
    add_job(IndexEntry("slow", "local", 50.0))
    make_job("slow", [0.05], 1.0, submitted_at=50.0)
    with pytest.warns(UserWarning, match="without metrics over time: there is a later job of this name"):
        assert points_of(tmp_path) == [("50.0", "0.05")]
    monkeypatch.setattr("cloudtrain.history.export.owner", lambda: "bob@other")
    with pytest.warns(UserWarning, match="job slow is exported without metrics over time: only .* has them"):
        assert points_of(tmp_path) == [("50.0", "0.05")]  # the owner of the row is not known


def test_parquet_has_numbers(tmp_path: Path) -> None:
    from pyarrow import parquet

    export("slow", "--to", tmp_path, "--format", "parquet")
    (job,) = parquet.read_table(tmp_path / "jobs.parquet").to_pylist()
    assert (job["name"], job["metrics.loss.max"], job["exit_code"], job["params.lr"]) == (
        "slow",
        0.9,
        0,
        "0.01",
    )
    assert [one["value"] for one in parquet.read_table(tmp_path / "metrics.parquet").to_pylist()] == [
        0.9,
        0.2,
        0.5,
    ]
    export("--where", "loss > 1", "--to", tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_mlflow_gets_each_job_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    uri = (tmp_path / "runs").as_uri()
    sent = to_mlflow(choose([]), uri, "trials")
    assert to_mlflow(choose(["slow"]), uri, "trials") == [sent[1]]
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("trials")
    assert experiment
    assert len(client.search_runs([experiment.experiment_id])) == 2
    run = client.get_run(sent[1])
    assert run.info.run_name == "slow"
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("FINISHED", 2000, 5000)
    assert run.data.params == {"lr": "0.01", "tag": "=cmd()", "key-token": "***"}
    points = client.get_metric_history(sent[1], "loss")
    assert [(one.step, one.value) for one in points] == [(0, 0.9), (1, 0.2), (2, 0.5)]
    assert run.data.tags["cloudtrain.git_commit"] == "abc123"


def test_an_export_to_mlflow_that_was_cut_off_continues_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setattr("cloudtrain.history.export.MOST_METRICS", 2)
    from mlflow import MlflowClient

    uri, batches, real = (tmp_path / "runs").as_uri(), [], MlflowClient.log_batch

    def log_batch(self: MlflowClient, run: str, metrics: Any = (), **others: Any) -> None:
        if metrics:
            batches.append([one.value for one in metrics])
            if len(batches) == 2:
                raise KeyboardInterrupt
        real(self, run, metrics=metrics, **others)

    monkeypatch.setattr(MlflowClient, "log_batch", log_batch)
    with pytest.raises(KeyboardInterrupt):
        to_mlflow(choose(["slow"]), uri, "trials")
    (sent,) = to_mlflow(choose(["slow"]), uri, "trials")
    assert batches == [[0.9, 0.2], [0.5], [0.5]]
    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("trials")
    assert experiment
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.status) == (sent, "FINISHED")
    assert [one.value for one in client.get_metric_history(sent, "loss")] == [0.9, 0.2, 0.5]


def test_mlflow_gets_jobs_that_have_ended_under_names_that_it_accepts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient

    odd = ("train//loss", "train/loss", "/loss", "../x", ".", "a:b", "/" * 300, "n" * 400)
    arguments = [part for name in odd for part in (f"--{name}", "1")]
    folder = make_job("odd", [], 0.1, submitted_at=30.0, arguments=arguments)
    events = [
        {"time": 1, "source": "a", "event": "metric", "name": name, "value": 1.0, "step": 0} for name in odd
    ]
    folder.events.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    monkeypatch.setenv("MLFLOW_TRUNCATE_LONG_VALUES", "false")
    wrong = PastJob("wrong", "local", "Completed", 1.0, parameters={"prompt": "x" * 7000})
    running = make_job("running", [0.5], 0.1, status=JobStatus.RUNNING, ended_at=None, exit_code=None)
    lock = running.lock()
    uri = (tmp_path / "runs").as_uri()
    with pytest.warns(UserWarning) as warned:
        sent = to_mlflow([wrong, *choose(["odd", "running", "slow"])], uri, "trials")
    messages = [str(one.message) for one in warned if one.category is UserWarning]
    assert any("jobs that have not ended are not sent: 1" in one for one in messages), messages
    assert any("MLflow refuses job wrong" in one for one in messages), messages
    client = MlflowClient(uri)
    assert [client.get_run(run).info.run_name for run in sent] == ["odd", "slow"]
    assert {"train/loss", "train/loss_2", "loss", "x", "a_b"} < {*client.get_run(sent[0]).data.metrics}
    experiment = client.get_experiment_by_name("trials")
    assert experiment
    assert len(client.search_runs([experiment.experiment_id])) == 2
    os.close(lock)  # type: ignore[arg-type]


MEASURED = """
import re, sys
from pathlib import Path
from cloudtrain.history.export import POINTS, _write
row = {**dict.fromkeys(POINTS), "job": "j", "metric": "loss"}
rows = ({**row, "step": number, "value": number / 3} for number in range(300_000))
_write(Path(sys.argv[1]), [*POINTS], rows)
# not getrusage: its maximum includes the memory of the process that has started this one
print(int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


@pytest.mark.parametrize("name", ["metrics.csv", "metrics.parquet"])
def test_many_points_are_written_in_little_memory(tmp_path: Path, name: str) -> None:
    """In memory, their rows would take 200 MB."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, str(tmp_path / name)], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 200, "MiB"
    if name.endswith("parquet"):
        from pyarrow import parquet

        found = parquet.ParquetFile(tmp_path / name)
        assert (found.metadata.num_rows, found.num_row_groups) == (300_000, 30)
    else:
        with open(tmp_path / name) as file:
            assert sum(1 for _ in file) == 300_001


def test_an_unknown_job_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(JobNotFound, match="there is no job other among those that fulfil the condition"):
        choose(["other"], "loss < 1")
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(command, ["--to", str(tmp_path / "file" / "below")])
    assert "cannot be written" in str(result.exception)
    assert os.listdir(tmp_path) == ["file"]
