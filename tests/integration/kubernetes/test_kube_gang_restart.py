"""Pods and nodes go away in the middle of a job: all hosts restart, from their last step, and no failure counts.

The image has neither cloudtrain nor boto3: both come through S3, with the source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kube_fixtures import Namespace
from kube_images import bare_python
from kube_objects import has_condition

from cloudtrain.contract import JobStatus
from cloudtrain.storage import open_store
from cloudtrain.submission import prepare
from cloudtrain.testing import S3Server

SCRIPT = """
import os, time
from pathlib import Path
from cloudtrain.storage import open_store

store, key = open_store(os.environ["STEPS"]), "rank-" + os.environ["RANK"]
done = int(store.read(key)) if store.stat(key) else 0
print(f"starts at step {done}", flush=True)
while not store.stat("enough"):
    done += 1
    store.write(key, str(done).encode())
    time.sleep(0.1)
if os.environ["RANK"] == "0":
    (Path(os.environ["SM_MODEL_DIR"]) / "model").write_text("trained")
"""


@pytest.mark.soak  # its parts are in tests/integration/restarts
def test_a_job_survives_the_loss_of_its_pods_and_nodes(
    kubernetes: Namespace, s3: str, s3_server: S3Server, tmp_path: Path
) -> None:
    kubernetes.give_storage(s3_server)
    kubernetes.cluster.kubelet.images.named["bare"] = bare_python(tmp_path / "bin")
    (tmp_path / "train.py").write_text(SCRIPT)
    submission = prepare(
        {
            "entry_point": str(tmp_path / "train.py"),
            "image_uri": "bare",
            "platform": "kubernetes",
            "job_name": "job",
            "instance_count": 2,
            "distribution": {"processes": {"enabled": True, "processes_per_host": 1}},
            "output_path": f"s3://{s3}/out",
            "environment": {"STEPS": f"s3://{s3}/steps"},
            "host_timeout": 5,
            "stop_grace": 2,
        },
        defaults={},
    )
    job = submission.submit()
    steps = open_store(f"s3://{s3}/steps")
    known: set[str] = set()

    def step() -> int:
        return int(steps.read("rank-0")) if steps.stat("rank-0") else 0

    def wait_for_new_pods() -> tuple[dict[str, Any], dict[str, Any]]:
        """Both hosts have new pods, which train."""
        pods = [dict[str, Any]()] * 2

        def train() -> bool:
            pods[:] = [kubernetes.pod(f"job-{index}") for index in range(2)]
            return all(
                pod["metadata"]["uid"] not in known and "starts at step" in kubernetes.log(f"job-{index}")
                for index, pod in enumerate(pods)
            )

        kubernetes.wait_until(train, "a new attempt", 90)
        known.update(pod["metadata"]["uid"] for pod in pods)
        before = step()
        kubernetes.wait_until(lambda: step() > before + 2, "steps")
        return pods[0], pods[1]

    def delete(pod: dict[str, Any]) -> None:
        kubernetes.bench.delete("pods", kubernetes.name, pod["metadata"]["name"])

    leader, follower = wait_for_new_pods()
    assert "starts at step 0" in kubernetes.log("job-0")
    delete(follower)
    leader, follower = wait_for_new_pods()
    assert "starts at step 0" not in kubernetes.log("job-0")
    delete(leader)
    leader, follower = wait_for_new_pods()
    node = follower["spec"]["nodeName"]
    kubernetes.cluster.lose_node(node)
    kubernetes.cluster.give_up_node(node)
    wait_for_new_pods()
    steps.write("enough", b"")
    kubernetes.wait_until(
        lambda: has_condition(kubernetes.bench.get("jobs", kubernetes.name, "job"), "Complete"), "the end"
    )
    status = kubernetes.bench.get("jobs", kubernetes.name, "job")["status"]
    assert status.get("failed", 0) == 0
    assert job.describe().status == JobStatus.COMPLETED
    assert job.model_data
    bucket, _, key = job.model_data[5:].partition("/")
    assert open_store(f"s3://{bucket}").stat(key)
