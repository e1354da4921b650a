"""Another user of the machine attacks a running job of two hosts. Nothing of the job secret can be found."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

from file_contents import file_contents
from local_jobs import Run, folder, wait_for_end, wait_until
from ordinary_user import USER, needs_root

from cloudtrain import Job
from cloudtrain.contract import JobStatus

WAITS = """
    import os, time
    base = os.environ["SAGEMAKER_BASE_DIR"]
    print("config", sorted(os.listdir(f"{base}/input/config")), flush=True)
    print("secret", "CLOUDTRAIN_SECRET" in os.environ, flush=True)
    while not os.path.exists(f"{base}/code/go"):
        time.sleep(0.05)
"""

INTRUDER = r"""
import json, socket, sys
for path in sys.argv[2:]:
    try:
        print("read", open(path).read())
    except OSError:
        pass
host, port = sys.argv[1].rsplit(":", 1)
hello = b"ctlink1\ncontrol\0" + bytes(32)
for message in (
    json.dumps({"type": "join", "host": "algo-2", "token": ""}).encode() + b"\n",
    json.dumps({"type": "spawn", "token": "", "host_rank": 1, "command": "touch /tmp/taken"}).encode() + b"\n",
    hello + bytes(32),
):
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(message)
        try:
            answer = connection.recv(1000)
            while len(answer) > 64 or answer and message[:8] != hello[:8]:
                print("said", answer)
                answer = connection.recv(1000)
        except ConnectionError:
            pass
print("done")
"""


@needs_root
def test_another_user_gets_nothing(run: Run) -> None:
    job = run(WAITS, instance_count=2, distribution={"processes": {"processes_per_host": 1}}, wait=False)
    wait_until(lambda: job.logs().count("secret False") == 2, "both ranks")
    place = folder(job)
    files = [str(path) for path in place.path.rglob("*") if path.is_file()]
    done = subprocess.run(
        ["/usr/bin/python3", "-c", INTRUDER, place.leader.read_text(), *files],
        user=USER, group=USER, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("done\n", "")
    assert place.leader.read_text().startswith("127.0.0.1:")
    keys = ranks_keys(job)
    assert len(keys) == 1, "the ranks of both hosts have one secret"
    for host in ("algo-1", "algo-2"):
        (place.host(host).code / "go").touch()
    assert wait_for_end(job).status == JobStatus.COMPLETED
    time.sleep(0.1)
    assert not [path for path in place.path.rglob("*") if path.name == "secret"]
    shown = "".join(data.decode(errors="replace") for _, data in file_contents(place.path))
    shown += job.logs()
    assert "'secret'" not in re.sub(r"secret (True|False)", "", job.logs())
    assert not [key for key in keys if shown.replace(key, "", 2).count(key)]


def ranks_keys(job: Job) -> set[str]:
    found = list(folder(job).path.rglob("ranks-key"))
    assert len(found) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in found)
    return {Path(path).read_text() for path in found}
