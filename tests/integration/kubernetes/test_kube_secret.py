"""The job secret does not reach the script, which runs as the same user in the same pod."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from kube_fixtures import Namespace
from kube_training import estimator

from cloudtrain.contract import JobStatus

LOOKS = """
import hashlib, os, pathlib, re

def look(data, where):
    for found in re.findall(rb"[0-9a-f]{64}", data):
        print("FOUND", hashlib.sha256(found).hexdigest(), where, flush=True)

folders = ["/opt/ml", "/cloudtrain", "/tmp", "/dev/shm", "/run"]
files = [path for folder in folders for path in pathlib.Path(folder).rglob("*") if path.is_file()]
count = 0
for path in [*files, *pathlib.Path("/proc").glob("[0-9]*/environ"), *pathlib.Path("/proc").glob("[0-9]*/cmdline")]:
    try:
        look(path.read_bytes(), path)
        count += 1
    except OSError:
        pass
runtime = pathlib.Path("/proc", str(os.getppid()))
assert b"cloudtrain.runtime" in (runtime / "cmdline").read_bytes()
for name in ("mem", "environ"):
    try:
        (runtime / name).open("rb").read(1)
        print("CAN READ", name, flush=True)
    except PermissionError:
        print("CANNOT READ", name, flush=True)
print("LOOKED AT", "many" if count > 10 else count, flush=True)
"""


def test_the_script_finds_no_trace_of_it(kubernetes: Namespace, tmp_path: Path) -> None:
    kubernetes.claim("outputs")
    job = estimator(tmp_path, LOOKS).fit(job_name="looks", wait=False)
    secret = kubernetes.bench.get("secrets", kubernetes.name, "looks")["data"]["job-secret"]
    job.wait(timeout=120)
    assert job.status == JobStatus.COMPLETED
    log = job.logs()
    assert log.count("LOOKED AT many") == 2
    assert (log.count("CANNOT READ"), log.count("CAN READ")) == (4, 0)
    assert hashlib.sha256(base64.b64decode(secret)).hexdigest() not in log
