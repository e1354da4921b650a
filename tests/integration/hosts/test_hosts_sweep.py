"""Sweeps on hosts: trials that run at the same time have their own hosts, or their own GPUs of a host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sdk_tuner_example import run_example
from ssh_hosts import SshHosts

from cloudtrain import ContinuousParameter, Estimator, HyperparameterTuner, Sweep

SCRIPT = """
import argparse, os, socket, time
from pathlib import Path
import cloudtrain
parser = argparse.ArgumentParser()
parser.add_argument("--rate", type=float)
rate = parser.parse_args().rate
here, runs = os.environ["CLOUDTRAIN_TRIAL"], Path(os.environ["RUNS"])
(runs / here).write_text(f"{socket.gethostname()} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
deadline = time.monotonic() + 100  # until all that run at the same time are there
while len([*runs.iterdir()]) < int(os.environ["TRIALS"]) and time.monotonic() < deadline:
    time.sleep(0.1)
cloudtrain.log(loss=rate, step=1)
"""


def estimator(three_hosts: SshHosts, folder: Path, trials: int, gpus: str) -> Estimator:
    (folder / "train.py").write_text(SCRIPT)
    runs = three_hosts.folder / folder.name
    runs.mkdir()
    return Estimator(
        str(folder / "train.py"),
        platform="hosts",
        environment={"RUNS": str(runs), "TRIALS": str(trials), "CUDA_VISIBLE_DEVICES": gpus},
        samples=False,
        platform_options={"hosts": "n1,n2", "ssh": three_hosts.ssh_from_outside("config")},
    )


def places(three_hosts: SshHosts, folder: Path) -> list[str]:
    return sorted(path.read_text() for path in (three_hosts.folder / folder.name).iterdir())


def test_trials_share_hosts_and_none_shares_gpus(
    three_hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    sweep = Sweep(
        estimator(three_hosts, tmp_path, 4, "0,1,2,3"),
        {"rate": [0.1, 0.2, 0.3, 0.4]},
        "loss",
        sampler="grid",
        parallel=4,
        trials_per_host=2,
    )
    assert sweep.fit().best().value == 0.1
    assert places(three_hosts, tmp_path) == ["n1 0,1", "n1 2,3", "n2 0,1", "n2 2,3"]


def test_a_tuner_gives_each_job_a_host(
    three_hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    ranges = {"rate": ContinuousParameter(0.1, 0.3)}
    job = estimator(three_hosts, tmp_path, 2, "0,1")
    options = {"strategy": "Random", "objective_type": "Minimize", "max_jobs": 2, "max_parallel_jobs": 2}
    tuner = HyperparameterTuner(job, "loss", ranges, random_seed=1, **options)
    tuner.fit(job_name="tune", logs=False)
    rows = tuner.analytics().rows()
    assert [row["TrainingJobStatus"] for row in rows] == ["Completed"] * 2
    assert tuner.best_training_job() == min(rows, key=lambda row: row["rate"])["TrainingJobName"]
    assert places(three_hosts, tmp_path) == ["n1 0,1", "n2 0,1"]


@pytest.mark.soak
def test_each_trial_has_an_mpirun_over_two_hosts(
    three_hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDTRAIN_HOME", str(tmp_path / "home"))
    described = estimator(three_hosts, tmp_path, 1, "0,1")
    described.fields |= {"distribution": {"mpi": {"processes_per_host": 1}}, "instance_count": 2}
    (tmp_path / "train.py").write_text(
        "import argparse, os, cloudtrain\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--rate', type=float)\n"
        "rank, size = (int(os.environ[f'OMPI_COMM_WORLD_{name}']) for name in ('RANK', 'SIZE'))\n"
        "cloudtrain.log(loss=parser.parse_args().rate * size + rank, step=1)\n"
    )
    started = Sweep(described, {"rate": [0.1, 0.2, 0.3]}, "loss", sampler="grid").fit()
    assert [trial.value for trial in started.trials.all] == pytest.approx([0.7, 0.9, 1.1]), (
        "the mean of both ranks"
    )


@pytest.mark.soak
def test_the_example_of_the_sdk(
    three_hosts: SshHosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = three_hosts.folder / "data"
    data.mkdir()
    (data / "digits").touch()
    ssh = three_hosts.ssh_from_outside("config")
    config = {"platform": "hosts", "platform_options": {"hosts": "n1,n2,n3", "ssh": ssh}}
    run_example(tmp_path, json.dumps(config), data.as_uri(), monkeypatch)
