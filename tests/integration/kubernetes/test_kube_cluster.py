"""The cluster of the tests behaves like a real one, as far as tests rely on it."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from kube_client import KubeClient, KubeError
from kube_fixtures import Namespace
from kube_objects import has_condition
from kube_server import USERS

pytestmark = pytest.mark.proof(
    "Kubernetes",
    real="kube-apiserver and kube-controller-manager 1.20; pods are started by a kubelet of the tests, as processes",
)

Object = dict[str, Any]


def _job(script: str, pods: int = 1, **spec: Any) -> Object:
    container = {
        "name": "train",
        "image": "python",
        "command": ["/bin/sh", "-c", script],
        "volumeMounts": [{"name": "config", "mountPath": "/config"}],
    }
    template = {
        "metadata": {"labels": {"job": "train"}},
        "spec": {
            "restartPolicy": "Never",
            "subdomain": "train",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "volumes": [{"name": "config", "configMap": {"name": "config"}}],
        },
    }
    shape = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "backoffLimit": 0}
    return {"metadata": {"name": "train"}, "spec": {**shape, "template": template, **spec}}


def _start(kubernetes: Namespace, job: Object) -> None:
    bench, name = kubernetes.bench, kubernetes.name
    bench.create("configmaps", name, {"metadata": {"name": "config"}, "data": {"greeting": "hello"}})
    service = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"job": "train"}}
    bench.create("services", name, {"metadata": {"name": "train"}, "spec": service})
    bench.create("jobs", name, job)


def _wait(kubernetes: Namespace, kind: str) -> Object:
    """The Job when it has a condition."""
    kubernetes.wait_until(
        lambda: has_condition(kubernetes.bench.get("jobs", kubernetes.name, "train"), kind), kind
    )
    return kubernetes.bench.get("jobs", kubernetes.name, "train")


def test_pods_of_a_job_meet_by_their_names(kubernetes: Namespace) -> None:
    script = """
    cat /config/greeting; echo " from $HOSTNAME, number $JOB_COMPLETION_INDEX, process $$$$"
    touch /tmp/mine /mine
    if [ $JOB_COMPLETION_INDEX = 0 ]; then
        python3 -c 'import socket; print(socket.create_server(("", 7778)).accept()[0].recv(99).decode())'
    else
        until python3 -c 'import socket; socket.create_connection(("train-0.train", 7778)).send(b"met")' 2>&-; do
            sleep 0.1
        done
    fi
    printf done >/dev/termination-log
    """
    _start(kubernetes, _job(script, pods=2))
    job = _wait(kubernetes, "Complete")
    assert (job["status"]["succeeded"], job["status"]["completedIndexes"]) == (2, "0-1")
    assert kubernetes.log("train-0").splitlines() == ["hello from train-0, number 0, process 1", "met"]
    [ended] = kubernetes.pod("train-0")["status"]["containerStatuses"]
    assert ended["state"]["terminated"]["message"] == "done"
    assert {pod["spec"]["nodeName"] for pod in kubernetes.pods} == {"node-1", "node-2"}
    logs = ["kubectl", "logs", "-l", "job=train", "--tail=1"]
    done = subprocess.run(logs, capture_output=True, text=True, check=True)
    assert sorted(done.stdout.splitlines()) == ["hello from train-1, number 1, process 1", "met"]


def test_a_pod_failure_policy_decides(kubernetes: Namespace) -> None:
    """Pods that exit with 75 are replaced, any other exit code ends the job, and with it the other pods."""
    script = """
    trap 'exit 143' TERM
    [ $JOB_COMPLETION_INDEX = 0 ] || { echo waits; sleep 600 & wait; }
    grep -q second /config/greeting && exit 3
    exit 75
    """
    rules = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [75]}},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [0]}},
    ]
    _start(kubernetes, _job(script, pods=2, podFailurePolicy={"rules": rules}))
    kubernetes.wait_for_line("train-1", "waits")
    kubernetes.cluster.preempt(kubernetes.name, kubernetes.pod("train-1")["metadata"]["name"])
    kubernetes.wait_until(lambda: len(kubernetes.pods) > 3, "pods that replace others")
    kubernetes.bench.patch("configmaps", kubernetes.name, "config", {"data": {"greeting": "second"}})
    job = _wait(kubernetes, "Failed")
    [failed] = [one for one in job["status"]["conditions"] if one["type"] == "Failed"]
    assert failed["reason"] == "PodFailurePolicy"
    assert "exit code 3 matching FailJob rule at index 2" in failed["message"]


def test_faults_hit_clients_only(kubernetes: Namespace) -> None:
    alice = KubeClient(kubernetes.proxy.url, kubernetes.server.authority, USERS["alice"][0], bench=False)
    kubernetes.proxy.faults.refuse(f"GET .*/{kubernetes.name}/pods", 429, retry_after=1)
    assert kubernetes.pods == []
    with pytest.raises(KubeError, match="429"):
        alice.list("pods", kubernetes.name)
    assert alice.list("pods", kubernetes.name) == []
    events = alice.watch(f"/api/v1/namespaces/{kubernetes.name}/configmaps")
    kubernetes.bench.create("configmaps", kubernetes.name, {"metadata": {"name": "first"}})
    assert next(events)[1]["metadata"]["name"] == "first"
    assert kubernetes.proxy.expire_watches() >= 1
    assert next(events)[1]["code"] == 410
    mine = [request.partition("?")[0] for request in kubernetes.proxy.requests if kubernetes.name in request]
    assert [request.rpartition("/")[2] for request in mine] == ["pods", "pods", "configmaps"]


@pytest.mark.soak
def test_a_pod_may_end_while_the_server_is_down(kubernetes: Namespace) -> None:
    _start(kubernetes, _job("echo sleeps; sleep 2; exit 0"))
    kubernetes.wait_for_line("train-0", "sleeps")
    [worker] = [
        one for one in kubernetes.cluster.kubelet.workers.values() if one.namespace == kubernetes.name
    ]
    container = worker.containers[0].process
    assert container
    kubernetes.server.stop_apiserver()
    assert container.wait(60) == 0
    kubernetes.server.start_apiserver()
    kubernetes.server.wait()
    _wait(kubernetes, "Complete")
