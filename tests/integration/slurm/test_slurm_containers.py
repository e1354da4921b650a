"""A job on two nodes of a real Slurm, in containers of the real Charliecloud."""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import SlurmCluster

from cloudtrain import Estimator, Job
from cloudtrain.contract import JobStatus
from cloudtrain.errors import TrainingFailed
from cloudtrain.storage import state_home

sys.path.append(str(Path(__file__).parents[1] / "batch"))

from machine_image import machine_image, need_charliecloud

SCRIPT = """
import json, os
from pathlib import Path

config = json.loads(Path("/opt/ml/input/config/resourceconfig.json").read_text())
Path("/opt/ml/model", config["current_host"]).write_text("a part")
names = ("CH_RUNNING", "SAGEMAKER_BASE_DIR", "SM_MODEL_DIR", "A_TOKEN", "RANK", "HOME")
seen = {name: os.environ.get(name) for name in names}
home = "/home/" + os.environ["USER"]
print("seen", json.dumps({**seen, "data": Path("/opt/ml/input/data/train/x.txt").read_text(),
      "host": config["current_host"], "home": os.path.exists(home) and os.listdir(home)}), flush=True)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    need_charliecloud()
    folder = tmp_path_factory.mktemp("ch")
    machine_image(folder / "image")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "data").mkdir()
    (folder / "data" / "x.txt").write_text("42")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CLOUDTRAIN_HOME", str(folder / "home"))
        yield folder


def submit(home: Path, name: str, **options: Any) -> Job:
    return Estimator(
        str(home / "train.py"),
        platform="slurm",
        image_uri=str(home / "image"),
        instance_count=2,
        distribution={"processes": {"processes_per_host": 1}},
        environment={"A_TOKEN": "hf_s3cret"},
        platform_options={"container": "charliecloud", "container_mounts": ["/usr"], **options},
        disable_output_compression=True,
    ).fit({"train": (home / "data").as_uri()}, job_name=name)


def test_every_host_has_its_own_opt_ml(slurm_module: SlurmCluster, home: Path) -> None:
    job = submit(home, "in-containers")
    assert job.describe().status == JobStatus.COMPLETED
    lines = [line.partition("seen ")[2] for line in job.logs().splitlines() if "] seen " in line]
    found = sorted((json.loads(line) for line in lines), key=lambda seen: str(seen["RANK"]))
    for seen, host, rank in zip(found, ("127.0.0.2", "127.0.0.3"), ("0", "1"), strict=True):
        assert seen.pop("CH_RUNNING")
        seen.pop("HOME")
        assert seen == {
            "SAGEMAKER_BASE_DIR": "/opt/ml",
            "SM_MODEL_DIR": "/opt/ml/model",
            "A_TOKEN": "hf_s3cret",
            "RANK": rank,
            "data": "42",
            "host": host,
            "home": False,
        }
    [model] = job.download(home / "downloaded")
    assert {path.name for path in model.iterdir()} == {"127.0.0.2", "127.0.0.3"}
    assert "hf_s3cret" not in job.platform.request("in-containers").to_json()


ATTACK = """
import os
from pathlib import Path

runtime = os.environ["PYTHONPATH"].split(":")[0]
print("runtime", runtime)
home = Path({home!r})
found = [str(path) for path in home.rglob("*") if path.is_file()]
print("sees", sorted(found))
for path in found:
    try:
        Path(path).write_bytes(b"evil")
    except OSError:
        continue
os.mkfifo("/opt/ml/output/failure.json") if not os.path.exists("/opt/ml/output/failure.json") else None
os.symlink("/etc/passwd", "/opt/ml/output/failure")
os.symlink("/etc/passwd", "/opt/ml/output/logs/passwd")
os.mkfifo("/opt/ml/output/logs/pipe")
raise SystemExit(3)
"""


@pytest.mark.parametrize("on_node", [False, True])
def test_a_container_sees_and_changes_nothing_of_other_jobs(
    slurm_module: SlurmCluster, home: Path, tmp_path: Path, on_node: bool
) -> None:
    folder = state_home()
    other = folder / "jobs" / "slurm" / "another-job"
    other.mkdir(parents=True, mode=0o700, exist_ok=True)
    (other / "secrets.json").write_text('{"variables": {"KEY": "s3cret"}}')
    script = tmp_path / "attack.py"
    script.write_text(ATTACK.format(home=str(folder)))
    name = f"attack-{on_node}".lower()
    estimator = Estimator(
        str(script),
        platform="slurm",
        image_uri=str(home / "image"),
        platform_options={
            "container": "charliecloud",
            "container_mounts": ["/usr"],
            **({"node_folder": str(tmp_path / "disk")} if on_node else {}),
        },
    )
    before = {path: path.read_bytes() for path in folder.glob("runtime/*/*")}
    with pytest.raises(TrainingFailed) as caught:
        estimator.fit(job_name=name)
    assert caught.value.failure.exit_code == 3, caught.value
    assert "root:" not in str(caught.value)
    job = Job.attach(name)
    [seen] = [line for line in job.logs().splitlines() if "] sees " in line]
    shared = [path for path in re.findall(r"'([^']+)'", seen) if f"/jobs/slurm/{name}/" not in path]
    assert [path.split("/")[-1] for path in shared] == ["cloudtrain.pyz", "sourcedir.tar.gz"]
    after = {path: path.read_bytes() for path in folder.glob("runtime/*/*")}
    assert {path: after[path] for path in before} == before
    assert all(hashlib.sha256(data).hexdigest() == path.parent.name for path, data in after.items())
    assert "s3cret" in (other / "secrets.json").read_text()
    logs = folder / "jobs" / "slurm" / name / "hosts" / "127.0.0.2" / "output" / "logs"
    assert not [
        path
        for path in logs.rglob("*")
        if path.is_file() and b"root:" in path.read_bytes() and not path.is_symlink()
    ]
    (other / "secrets.json").unlink()
    other.rmdir()


def test_an_engine_that_the_nodes_lack(slurm_module: SlurmCluster, home: Path) -> None:
    with pytest.raises(TrainingFailed) as caught:
        submit(home, "no-apptainer", container="apptainer")
    failure = caught.value.failure
    assert failure.message.startswith("container: apptainer or singularity is not on ")
    assert "PATH" in failure.message and "modules" in failure.hint
    assert failure.exit_code == 125


def test_a_slurm_without_pyxis(slurm_module: SlurmCluster, home: Path) -> None:
    with pytest.raises(TrainingFailed) as caught:
        submit(home, "no-pyxis", container="pyxis")
    assert "has no --container-image" in caught.value.failure.message
