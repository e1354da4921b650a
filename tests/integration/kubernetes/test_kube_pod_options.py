"""One job with what pods can have: mpirun, requirements, volumes, Secrets, a user, a read-only root, isolation."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from kube_fixtures import Namespace

from cloudtrain.contract import JobStatus
from cloudtrain.submission import prepare

SCRIPT = """
import json, os, pathlib, sys, tiny
def refused(path):
    try:
        pathlib.Path(path).write_text("x")
    except OSError as error:
        return error.strerror
rank = os.environ["RANK"]
names = ("A_TOKEN", "FROM_KEY", "FROM_MAP", "DOLLARS", "OMPI_COMM_WORLD_SIZE")
shm = os.statvfs("/dev/shm")
print("FOUND", json.dumps({
    "rank": rank,
    "host": os.environ["SM_CURRENT_HOST"],
    "argv": sys.argv[1:],
    "variables": {name: os.environ.get(name) for name in names},
    "channel": pathlib.Path(os.environ["SM_CHANNEL_TRAIN"], "part").read_text(),
    "refused": [refused("/data/x"), refused("/usr/x")],
    "user": os.getuid(),
    "installed": tiny.VALUE,
    "shm": shm.f_blocks * shm.f_frsize,
}), flush=True)
if rank == "0":
    pathlib.Path(os.environ["SM_MODEL_DIR"], "model").write_text("trained")
"""
COPY = """
import os, pathlib
pathlib.Path("/data/part").write_text("data")
"""
CLAIM: dict[str, Any] = {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
BASE: dict[str, Any] = {"platform": "kubernetes", "image_uri": "python:3.12"}


def _make_wheel(path: Path) -> None:
    """A package, as a wheel: pip needs no network for it."""
    about = "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n"
    wheel = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("tiny.py", "VALUE = 7\n")
        for name, text in (("METADATA", about), ("WHEEL", wheel), ("RECORD", "tiny.py,,\n")):
            file.writestr(f"tiny-1.dist-info/{name}", text)


def _run(folder: Path, script: str, **fields: Any) -> Any:
    source = folder / fields["job_name"]
    source.mkdir()
    (source / "train.py").write_text(script)
    if "tiny" in script:
        _make_wheel(source / "tiny-1-py3-none-any.whl")
        (source / "requirements.txt").write_text("./tiny-1-py3-none-any.whl\n")
    described = {**BASE, "entry_point": "train.py", "source_dir": str(source), **fields}
    job = prepare(described, defaults={}).submit()
    assert job.wait(timeout=180).status == JobStatus.COMPLETED, job.logs()
    return job


def test_a_pod_is_rendered_with_its_options(
    kubernetes: Namespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, space = kubernetes.bench, kubernetes.name
    for name in ("data", "out"):
        bench.create("persistentvolumeclaims", space, {"metadata": {"name": name}, "spec": CLAIM})
    bench.create("secrets", space, {"metadata": {"name": "keys"}, "stringData": {"key": "from key"}})
    bench.create("configmaps", space, {"metadata": {"name": "map"}, "data": {"FROM_MAP": "from map"}})
    monkeypatch.setenv("A_TOKEN", "token of the submitter")
    _run(
        tmp_path,
        COPY,
        job_name="copy",
        platform_options={"discard_outputs": True, "volumes": ["data:/data"]},
    )
    job = _run(
        tmp_path,
        SCRIPT,
        job_name="train",
        instance_count=2,
        distribution={"mpi": {"enabled": True, "processes_per_host": 2}},
        hyperparameters={"lr": 0.1},
        environment={"DOLLARS": "$(HOME) $$ $HOME"},
        secrets=["A_TOKEN"],
        inputs={"train": "file:///data"},
        output_path="file:///out/jobs",
        enable_network_isolation=True,
        platform_options={
            "volumes": ["data:/data:ro", "out:/out"],
            "secret_env": {"FROM_KEY": "keys/key"},
            "env_from": ["configmap:map"],
            "run_as_user": 4242,
            "read_only_root": True,
            "shm_size": "64Mi",
        },
    )
    found = [json.loads(line.partition("FOUND ")[2]) for line in job.logs().splitlines() if "FOUND" in line]
    assert sorted((one["rank"], one["host"]) for one in found) == [
        ("0", "train-0"),
        ("1", "train-0"),
        ("2", "train-1"),
        ("3", "train-1"),
    ]
    assert (
        "unhandled shell" not in job.logs()
    )  # Open MPI looks for that of a user that the image does not know
    for one in found:
        assert one["argv"] == ["--lr", "0.1"]
        assert one["variables"] == {
            "A_TOKEN": "***",  # the output hides it
            "FROM_KEY": "from key",
            "FROM_MAP": "from map",
            "DOLLARS": "$(HOME) $$ $HOME",
            "OMPI_COMM_WORLD_SIZE": "4",
        }
        assert (one["channel"], one["installed"]) == ("data", 7)
        assert all(one["refused"])
        assert (one["user"], one["shm"]) == (4242, 64 << 20)
    description = job.describe()
    assert description.model_data == "file:///out/jobs/train/output/model.tar.gz"
    subprocess.run(["kubectl", "delete", "jobs", "--all"], check=True, capture_output=True)
    own = ["configmaps/map", "secrets/keys"]
    kubernetes.wait_until(lambda: kubernetes.leftovers == own, "only what the user made is left")
