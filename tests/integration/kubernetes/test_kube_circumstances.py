"""The circumstances of pods: any user, a root file system that cannot be written, limits, mpirun between machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kube_fixtures import Namespace
from kube_objects import has_condition

from cloudtrain.submission import prepare

SCRIPT = """
import getpass, json, os, tempfile
from pathlib import Path
found = {
    "rank": os.environ.get("OMPI_COMM_WORLD_RANK"),
    "size": os.environ.get("OMPI_COMM_WORLD_SIZE"),
    "uid": os.getuid(),
    "user": getpass.getuser(),
    "home": os.access(Path.home(), os.W_OK),
    "temporary": bool(tempfile.mkdtemp()),
    "root": os.access("/", os.W_OK),
    "host": os.environ["SM_CURRENT_HOST"],
}
print("FOUND", json.dumps(found), flush=True)
"""


@pytest.mark.parametrize("user", [64321, pytest.param(0, marks=pytest.mark.soak)])
def test_mpirun_between_pods(kubernetes: Namespace, tmp_path: Path, user: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    options = {"discard_outputs": True, "run_as_user": user, "read_only_root": True, "rendering": "job"}
    described: dict[str, Any] = {
        "entry_point": str(tmp_path / "train.py"),
        "image_uri": "python:3.12",
        "platform": "kubernetes",
        "job_name": "job",
        "instance_count": 2,
        "distribution": {"mpi": {"enabled": True, "processes_per_host": 2}},
        "stop_grace": 2,
        "platform_options": options,
    }
    prepare(described, defaults={}).submit()

    def ended() -> bool:
        job = kubernetes.bench.get("jobs", kubernetes.name, "job")
        return has_condition(job, "Complete") or has_condition(job, "Failed")

    kubernetes.wait_until(ended, "the end")
    logs = {host: kubernetes.log(host) for host in ("job-0", "job-1")}
    lines = [line for log in logs.values() for line in log.splitlines() if "FOUND" in line]
    found = sorted(
        (json.loads(line.partition("FOUND ")[2]) for line in lines), key=lambda one: int(one["rank"] or 0)
    )
    assert [one["rank"] for one in found] == ["0", "1", "2", "3"], logs
    assert [one["host"] for one in found] == ["job-0", "job-0", "job-1", "job-1"]
    for one in found:
        assert (one["size"], one["uid"], one["home"], one["temporary"]) == ("4", user, True, True)
        assert one["user"] == ("root" if user == 0 else "cloudtrain")
        assert one["root"] is False
