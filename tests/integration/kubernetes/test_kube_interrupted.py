"""A client that is killed while it submits leaves no pods, and what it leaves can be described and removed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kube_fixtures import Namespace
from kube_objects import has_condition
from test_kube_submit import prepared

from cloudtrain.contract import JobStatus
from cloudtrain.errors import JobExists
from cloudtrain.platforms.kubernetes import KubernetesPlatform
from cloudtrain.platforms.kubernetes.life import waiting

CREATED = ("jobs", "services", "configmaps", "configmaps", "networkpolicies", "secrets")
"""The objects of a submission, in the order of their creation."""

SUBMITS = """
import os, sys
from pathlib import Path
from test_kube_submit import prepared

prepared(Path(sys.argv[1]), job_name="warm")
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        prepared(Path(sys.argv[1]), job_name=line.strip()).submit()
        os._exit(0)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


@pytest.fixture
def killed(kubernetes: Namespace, tmp_path: Path) -> list[str]:
    """The names of jobs whose clients were killed after each of their creates."""
    client = subprocess.Popen(
        [sys.executable, "-c", SUBMITS, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert client.stdin and client.stdout
    names = []
    with client:
        for count, plural in enumerate(CREATED):
            pids: queue.Queue[int] = queue.Queue()
            names.append(f"killed-{count}")
            faults = kubernetes.proxy.faults
            faults.clear()
            faults.delay(f"POST .*/{plural}", 0, times=CREATED[:count].count(plural))
            faults.after(f"POST .*/{plural}", lambda pids=pids: os.kill(pids.get(timeout=60), signal.SIGKILL))
            print(names[-1], file=client.stdin, flush=True)
            pids.put(int(client.stdout.readline()))
            assert int(client.stdout.readline()) == signal.SIGKILL
    return names


def test_a_killed_submission_holds_no_nodes_and_can_be_removed(
    kubernetes: Namespace, killed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, space, platform = kubernetes.bench, kubernetes.name, KubernetesPlatform()
    monkeypatch.setattr(waiting, "SUBMISSION_SECONDS", 3600.0)
    for name in killed:
        kubernetes.wait_until(
            lambda name=name: has_condition(bench.get("jobs", space, name), "Suspended"), "the controller"
        )
    assert kubernetes.pods == []
    assert {(job.status, job.reason) for job in platform.list()} == {
        (JobStatus.PENDING, "it is being submitted")
    }
    monkeypatch.setattr(waiting, "SUBMISSION_SECONDS", 0.0)
    reason = platform.describe("killed-5").reason
    assert reason == (
        "its submission was interrupted. It holds no nodes. Remove it with: cloudtrain stop killed-5"
    )
    with pytest.raises(JobExists, match="already a Job killed-5") as exists:
        prepared(tmp_path, job_name="killed-5").submit()
    assert "cloudtrain stop killed-5" in exists.value.hint
    for name in killed:
        platform.stop(name)
    kubernetes.wait_until(lambda: not kubernetes.leftovers, "that nothing is left")
    prepared(tmp_path, job_name="killed-5").submit()
    kubernetes.wait_until(lambda: kubernetes.pods, "the pods of a job that was submitted again")


def test_an_object_that_is_its_own_and_a_busy_quota_do_not_end_a_submission(
    kubernetes: Namespace, tmp_path: Path
) -> None:
    faults = kubernetes.proxy.faults
    faults.repeat("POST .*/jobs")
    faults.repeat("POST .*/secrets")
    faults.refuse("POST .*/configmaps", 409)
    prepared(tmp_path, job_name="train").submit()
    assert faults.left == 0
    kubernetes.wait_until(lambda: kubernetes.pods, "its pods")
