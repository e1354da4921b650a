"""`pod_start` as a process, with the mounts of a pod: it lays out the folders of the contract, then is the runtime."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.platforms.kubernetes.labels import POD_START
from cloudtrain.platforms.kubernetes.render.pod import start_command

RUNTIME = b"""
import json, os, sys
print(json.dumps({"argv": sys.argv, "environ": dict(os.environ), "path": sys.path}))
"""


class Pod:
    """The folders of a pod, below a temporary one."""

    def __init__(self, folder: Path) -> None:
        self.base, self.mounts = folder / "opt" / "ml", folder / "cloudtrain"
        self.message = folder / "message"
        hidden = self.mounts / "config" / "..2026"
        for path in (hidden, self.mounts / "runtime", self.mounts / "secret"):
            path.mkdir(parents=True)
        shutil.copy(POD_START, hidden / "start.py")
        (hidden / "sourcedir.tar.gz").write_bytes(b"source")
        submitted = json.dumps("file:///opt/ml/input/data/code/sourcedir.tar.gz")
        (hidden / "hyperparameters.json").write_text(json.dumps({"sagemaker_submit_directory": submitted}))
        (hidden / "inputdataconfig.json").write_text("{}")
        for path in hidden.iterdir():  # a kubelet links the files
            (self.mounts / "config" / path.name).symlink_to(path)
        (self.mounts / "runtime" / "cloudtrain.pyz.gz").write_bytes(gzip.compress(RUNTIME))
        self.hosts(socket.gethostname().partition(".")[0], "other")
        self.environ = {
            "PATH": os.environ["PATH"],
            "SAGEMAKER_BASE_DIR": str(self.base),
            "CLOUDTRAIN_RUNTIME_SHA256": hashlib.sha256(RUNTIME).hexdigest(),
            "CLOUDTRAIN_TERMINATION_MESSAGE": str(self.message),
            "HOME": "/",
            "CLOUDTRAIN_SECRET": "s" * 64,
        }

    def hosts(self, *names: str) -> None:
        document = {"hosts": names, "network_interface_name": "eth0"}
        (self.mounts / "config" / "resourceconfig.json").write_text(json.dumps(document))

    def pin(self) -> None:
        """Have the present documents checked."""
        names = ("hyperparameters.json", "inputdataconfig.json", "resourceconfig.json")
        found = b"".join((self.mounts / "config" / name).read_bytes() for name in names)
        self.environ["CLOUDTRAIN_DOCUMENTS_SHA256"] = hashlib.sha256(found).hexdigest()

    def run(self) -> subprocess.CompletedProcess[str]:
        command = start_command(sys.executable)
        command[3] = str(self.mounts / "config" / "start.py")
        return subprocess.run(
            command, env=self.environ, cwd=self.base.parents[1], capture_output=True, text=True
        )

    def started(self) -> dict[str, Any]:
        """The arguments and variables of the runtime."""
        done = self.run()
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def failure(self) -> str:
        """The termination message of a pod that could not start."""
        done = self.run()
        assert done.returncode == 1 and "Traceback" not in done.stderr
        ending = json.loads(self.message.read_text())
        assert ending["status"] == "Failed"
        message: str = ending["failure"]["message"]
        assert message in done.stderr
        return message


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_the_contract_is_laid_out(pod: Pod) -> None:
    pod.pin()
    found = pod.started()
    assert found["argv"] == [str(pod.base / "input/data/cloudtrain/cloudtrain.pyz")]
    assert not any("site-packages" in path for path in found["path"])
    config = pod.base / "input" / "config"
    resources = json.loads((config / "resourceconfig.json").read_text())
    own = socket.gethostname().partition(".")[0]
    assert (resources["current_host"], resources["hosts"]) == (own, [own, "other"])
    assert (config / "secret").read_text() == "s" * 64
    assert (config / "secret").stat().st_mode & 0o777 == 0o600
    assert (pod.base / "input/data/code/sourcedir.tar.gz").read_bytes() == b"source"
    own = {"CLOUDTRAIN_RUNTIME_SHA256", "CLOUDTRAIN_DOCUMENTS_SHA256", "CLOUDTRAIN_SECRET"}
    assert not own & found["environ"].keys()
    assert os.access(found["environ"]["HOME"], os.W_OK)


def test_a_container_may_start_twice(pod: Pod) -> None:
    assert pod.started()["argv"] == pod.started()["argv"]


def test_a_pod_with_host_networking_is_identified_by_its_index(pod: Pod) -> None:
    pod.hosts("a-job-0", "a-job-1")
    pod.environ["JOB_COMPLETION_INDEX"] = "1"
    pod.started()
    resources = json.loads((pod.base / "input/config/resourceconfig.json").read_text())
    assert resources["current_host"] == "a-job-1"


@pytest.mark.parametrize("pod_name", ["a-job-worker-0", "a-job-launcher-x7k2p"])
def test_a_pod_of_an_mpijob_with_host_networking_is_identified_by_its_name(pod: Pod, pod_name: str) -> None:
    pod.hosts("a-job-launcher", "a-job-worker-0")
    pod.environ["CLOUDTRAIN_POD"] = pod_name
    pod.started()
    resources = json.loads((pod.base / "input/config/resourceconfig.json").read_text())
    assert resources["current_host"] == pod_name.removesuffix("-x7k2p")


@pytest.mark.parametrize("index", ["", "2", "x"])
def test_a_pod_that_is_not_one_of_the_hosts(pod: Pod, index: str) -> None:
    pod.hosts("a-job-0", "a-job-1")
    pod.environ["JOB_COMPLETION_INDEX"] = index
    assert "which is not a host of the job: a-job-0, a-job-1" in pod.failure()


def test_another_runtime_is_refused(pod: Pod) -> None:
    pod.environ["CLOUDTRAIN_RUNTIME_SHA256"] = "0" * 64
    assert f"expected {'0' * 64}" in pod.failure()


def test_another_start_program_is_refused(pod: Pod) -> None:
    (pod.mounts / "config" / "start.py").resolve().write_text("print('mine now')")
    done = pod.run()
    assert done.returncode == 1 and "its ConfigMap was replaced" in done.stderr and not done.stdout


def test_modules_in_the_working_directory_are_not_started(pod: Pod) -> None:
    (pod.base.parents[1] / "hashlib.py").write_text("raise SystemExit('not the standard library')")
    pod.started()


@pytest.mark.parametrize("name", ["hyperparameters.json", "inputdataconfig.json", "resourceconfig.json"])
def test_other_documents_are_refused(pod: Pod, name: str) -> None:
    pod.pin()
    pod.started()
    document = pod.mounts / "config" / name
    document.write_text(document.read_text().replace("}", " }"))
    assert "not submitted with the files of its ConfigMap" in pod.failure()


def test_a_volume_that_cannot_be_written(pod: Pod) -> None:
    pod.base.parent.mkdir(parents=True)
    pod.base.write_text("a file")
    assert str(pod.base) in pod.failure()


def test_a_missing_mount_is_named(pod: Pod) -> None:
    (pod.mounts / "runtime" / "cloudtrain.pyz.gz").unlink()
    assert "neither" in (message := pod.failure()) and "runtime-url" in message


@pytest.mark.parametrize("slow", ["check", "start"])
def test_a_pod_that_is_stopped_before_its_program_runs(pod: Pod, slow: str) -> None:
    """As process 1, it would run on until its grace period is over: the kernel discards what nothing handles."""
    python, start = pod.base.parent / "python", pod.mounts / "config" / "start.py"
    gate = pod.base.parent / "gate" if slow == "check" else start
    python.parent.mkdir(parents=True)
    gate.unlink(missing_ok=True)
    os.mkfifo(gate)
    pause = f'read line <"{gate}"; ' if slow == "check" else ""
    python.write_text(f'#!/bin/sh\n{pause}exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    command = start_command(str(python))
    command[3] = str(start)
    with subprocess.Popen(command, env={**pod.environ, "CLOUDTRAIN_RESTART_EXIT_CODE": "75"}) as process:
        with gate.open("wb"):  # once the other side opens it
            process.terminate()
        assert process.wait(60) == 75
