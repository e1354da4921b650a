"""The distributions of TensorFlow on this machine, without TensorFlow."""

from __future__ import annotations

import json
from pathlib import Path

from local_jobs import Run, live_processes, write

SHOWS = """
    import json, os
    names = ("TF_CONFIG", "RANK", "WORLD_SIZE")
    print(json.dumps([os.environ.get(name) for name in names]), flush=True)
"""

STAND_IN = """
import os, pathlib, time

class Server:
    def __init__(self, cluster, *, job_name, task_index):
        print(job_name, task_index, sorted(cluster), os.environ.get("CUDA_VISIBLE_DEVICES"), flush=True)
        pathlib.Path(os.environ["STARTED"], f"{job_name}-{task_index}").touch()

    def join(self):
        time.sleep(600)

class distribute:
    pass

distribute.Server = Server
"""
"""A module ``tensorflow`` whose servers never end, as the real ones. They leave a file in the folder ``STARTED``."""


def test_hosts_are_workers_of_the_mirrored_strategy(run: Run) -> None:
    job = run(SHOWS, instance_count=2, distribution={"multi_worker_mirrored_strategy": {}})
    assert job.failure is None, job.logs()
    shown = [json.loads(line.partition("] ")[2]) for line in sorted(job.logs().splitlines())]
    configs = [json.loads(config) for config, *_ in shown]
    workers = configs[0]["cluster"]["worker"]
    assert len(set(workers)) == 2
    assert all(worker.startswith("127.0.0.1:") for worker in workers)
    assert configs == [
        {"cluster": {"worker": workers}, "environment": "cloud", "task": {"index": index, "type": "worker"}}
        for index in range(2)
    ]
    assert [place for _, *place in shown] == [["0", "2"], ["1", "2"]]


def test_one_host_has_no_parameter_server(run: Run) -> None:
    """As in AWS's images."""
    job = run(SHOWS, distribution={"parameter_server": {}})
    assert job.logs() == '[rank 0] [null, "0", "1"]\n'


def test_the_job_completes_with_its_chief(run: Run, tmp_path: Path) -> None:
    """Parameter servers, and workers that serve the chief, never end on their own."""
    script = """
        import json, os, pathlib, time
        task = json.loads(os.environ["TF_CONFIG"])["task"]
        print(task["type"], task["index"], flush=True)
        started = pathlib.Path(os.environ["STARTED"])
        (started / task["type"]).touch()
        while task["type"] == "worker" or len(list(started.iterdir())) < 4:
            time.sleep(0.02)
    """
    packages = write(tmp_path / "packages", "tensorflow.py", STAND_IN)
    started = tmp_path / "started"
    started.mkdir()
    job = run(
        script,
        instance_count=2,
        distribution={"parameter_server": {}},
        environment={"PYTHONPATH": str(packages), "STARTED": str(started)},
    )
    assert job.failure is None, job.logs()
    assert sorted(job.logs().splitlines()) == [
        "[rank 0] chief 0",
        "[rank 1] worker 0",
        "ps 0 ['chief', 'ps', 'worker'] -1",
        "ps 1 ['chief', 'ps', 'worker'] -1",
    ]
    assert live_processes(job) == []


def test_a_parameter_server_that_fails_ends_the_job(run: Run, tmp_path: Path) -> None:
    packages = write(tmp_path / "packages", "tensorflow.py", "raise ImportError('no such library')")
    job = run(
        "import time; time.sleep(600)",
        instance_count=2,
        distribution={"parameter_server": {}},
        environment={"PYTHONPATH": str(packages)},
    )
    assert job.failure
    assert job.failure.message == "the parameter server failed: ImportError: no such library"
    assert live_processes(job) == []


def test_tensorflows_server_listens_on_loopback_only(run: Run) -> None:
    """TensorFlow itself listens on all interfaces, and executes the functions that it receives."""
    script = """
        import json, os, socket, time
        cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]
        port = int(cluster["worker"][0].rpartition(":")[2])
        tcp = socket.create_server(("", port))
        for _ in range(2000):
            device = tcp.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16).rstrip(b"\\0").decode()
            if device:
                break
            time.sleep(0.05)
        others = socket.create_server(("", 0))
        print([device, others.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)], flush=True)
    """
    job = run(script, distribution={"multi_worker_mirrored_strategy": {}})
    assert job.logs() == "[rank 0] ['lo', b'']\n", job.logs()
