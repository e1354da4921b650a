"""An image as it is built, run and pushed, on a real engine.

The base and the engine are those of the other tests: what the image's Python is linked to comes from this machine.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import tarfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from engine_daemon import Engine
from image_builds import cloudtrain, write_wheel

from cloudtrain.errors import InvalidJob
from cloudtrain.images import Registry, find_flavour, find_local, local_image, push_image
from cloudtrain.packaging import RUNTIME_FILE
from cloudtrain.spec import TrainingJob

FLAVOUR = find_flavour("pytorch-cpu-mpi")
JOB = TrainingJob.from_dict({"image_uri": "auto", "framework": "pytorch", "distribution": {"mpi": {}}})
SECOND = 1_000_000_000
"""In nanoseconds."""

SCRIPT = """
import os, shutil, framework, extra
open(os.environ["SM_MODEL_DIR"] + "/model.txt", "w").close()
print("user", os.getuid(), "has", *(name for name in ("mpirun", "sshd") if shutil.which(name)))
"""


@dataclass
class Built:
    """An image on an engine."""

    engine: Engine
    client: docker.APIClient
    answer: dict[str, Any]
    wheels: Path
    runtime: str
    """The hash of the bundled runtime."""

    def run(
        self, command: list[str] | None = None, files: Path | None = None, user: str = ""
    ) -> tuple[int, str]:
        """The exit status of a container, and what it printed. The tree ``files`` is laid over its ``/opt/ml``."""
        container = self.client.create_container(
            self.answer["id"],
            command,
            user=user,
            host_config=self.client.create_host_config(network_mode="none"),
        )
        try:
            if files:
                self.client.put_archive(container, "/opt/ml", _tar(files))
            self.client.start(container)
            status = self.client.wait(container, timeout=240)["StatusCode"]
            return status, self.client.logs(container).decode()
        finally:
            self.client.remove_container(container, force=True)


def _tar(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path in folder.rglob("*"):
            if path.is_file():
                tar.add(path, path.relative_to(folder))
    return buffer.getvalue()


@contextmanager
def _built(engine: Engine, base: str, folder: Path) -> Iterator[Built]:
    wheels = folder / "wheels"
    write_wheel(wheels, "framework")
    status, answer = cloudtrain(
        *("image", "build", FLAVOUR.name, "--engine", engine.url, "--base", base),
        *("--wheels", str(wheels), "--offline", "--build-arg", "PACKAGES=framework"),
        *("--build-arg", "SYSTEM="),  # the base has no apt
        CLOUDTRAIN_HOME=str(folder / "home"),
    )
    assert status == 0, answer
    with closing(docker.APIClient(base_url=engine.url)) as client:
        # as packed for jobs: in a folder named by its hash
        [runtime] = (path.parent for path in (folder / "home").rglob(RUNTIME_FILE))
        yield Built(engine, client, answer, wheels, runtime.name)


@pytest.fixture(scope="module")
def built(engine: Engine, base_image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """The image on Docker."""
    with _built(engine, base_image, tmp_path_factory.mktemp("docker")) as found:
        yield found


def test_what_was_built(built: Built, base_image: str) -> None:
    assert {**built.answer, "id": ""} == {"flavour": FLAVOUR.name, "image": FLAVOUR.image, "id": ""}
    config = built.client.inspect_image(FLAVOUR.image)["Config"]
    assert (config["User"], config["Cmd"], config.get("Entrypoint")) == ("train", ["train"], None)
    labels = config["Labels"]
    assert labels["org.opencontainers.image.base.name"] == base_image
    assert labels["org.opencontainers.image.base.digest"].startswith("sha256:")
    assert labels["cloudtrain.framework"] == "pytorch"
    assert labels["cloudtrain.framework-version"] == FLAVOUR.version
    status, rows = cloudtrain("image", "list", "--engine", built.engine.url)
    assert status == 0
    assert [row["flavour"] for row in rows if row["local"]] == [FLAVOUR.name]
    # the runtime in the image is the bundled one
    container = built.client.create_container(FLAVOUR.image)
    try:
        chunks, _ = built.client.get_archive(container, "/opt/cloudtrain/cloudtrain.pyz")
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            runtime = tar.extractfile("cloudtrain.pyz")
            assert runtime is not None
            assert hashlib.sha256(runtime.read()).hexdigest() == built.runtime
    finally:
        built.client.remove_container(container)


def _job(folder: Path) -> Path:
    """The files that SageMaker puts below ``/opt/ml`` for a job with a requirement."""
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text(SCRIPT)
    (folder / "code" / "requirements.txt").write_text("--no-index\n--find-links /opt/ml/wheels\nextra\n")
    write_wheel(folder / "wheels", "extra")
    (folder / "input" / "config").mkdir(parents=True)
    (folder / "input" / "config" / "hyperparameters.json").write_text('{"sagemaker_program": "train.py"}')
    return folder


def test_a_job_runs_as_any_user(built: Built, tmp_path: Path) -> None:
    job = _job(tmp_path)
    for user, number in (("", "1001"), ("4711:4711", "4711")):
        status, output = built.run(files=job, user=user)
        assert status == 0, output
        for said in ("this is framework", "this is extra", f"user {number} has mpirun sshd"):
            assert f"[rank 0] {said}" in output


def test_podman_builds_and_runs(
    podman: Engine, base_image: str, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    with _built(podman, base_image, tmp_path_factory.mktemp("podman")) as built:
        status, output = built.run(files=_job(tmp_path))
        assert status == 0, output
        assert "user 1001 has mpirun sshd" in output
        assert local_image(JOB, built.client, gpu=False).endswith(FLAVOUR.image)
    assert podman.leftovers() == []


def test_the_bundled_runtime_takes_precedence(built: Built, tmp_path: Path) -> None:
    path = tmp_path / "input" / "data" / "cloudtrain" / "cloudtrain.pyz"
    path.parent.mkdir(parents=True)
    path.write_text("print('travelled')")
    assert built.run(["train"], tmp_path) == (0, "travelled\n")


def test_a_container_is_healthy_until_its_job_has_failed(built: Built) -> None:
    often = {"Interval": SECOND // 4, "Retries": 1}
    wait = "import time; time.sleep(600)"
    container = built.client.create_container(built.answer["id"], ["python", "-c", wait], healthcheck=often)
    try:
        built.client.start(container)
        _wait_for_health(built.client, container, "healthy")
        write = built.client.exec_create(container, ["sh", "-c", "echo ValueError > /opt/ml/output/failure"])
        built.client.exec_start(write)
        _wait_for_health(built.client, container, "unhealthy")
    finally:
        built.client.remove_container(container, force=True)


def _wait_for_health(client: docker.APIClient, container: dict[str, str], wanted: str) -> None:
    deadline = time.monotonic() + 90
    while client.inspect_container(container)["State"]["Health"]["Status"] != wanted:
        assert time.monotonic() < deadline, f"the container is never {wanted}"
        time.sleep(0.05)


def test_auto(built: Built) -> None:
    assert local_image(JOB, built.client, gpu=False) == FLAVOUR.image
    with pytest.raises(InvalidJob, match=r"image cloudtrain/pytorch:.* is not on this machine") as error:
        local_image(JOB, built.client, gpu=True)
    assert error.value.hint == "Build it: cloudtrain image build pytorch-cuda-mpi"


def test_a_build_that_fails(built: Built, base_image: str) -> None:
    status, answer = cloudtrain(
        *("image", "build", FLAVOUR.name, "--engine", built.engine.url, "--base", base_image),
        *("--wheels", str(built.wheels), "--offline", "--build-arg", "PACKAGES=nowhere", "--tag", "failed:1"),
    )
    assert status == 1
    message, hint = answer["error"]["message"], answer["error"]["hint"]
    assert message.startswith("image failed:1: Step ")
    assert "RUN /opt/cloudtrain/steps/packages" in message
    assert "No matching distribution found for nowhere" in hint
    assert built.client.images("failed") == []
    assert built.engine.leftovers() == []


def test_bad_input(built: Built) -> None:
    base = "127.0.0.1:9/no/image:there"
    cases = {
        ("build", "pytorch"): (2, "there is no image 'pytorch'"),
        ("build", "python-cpu", "--base", base): (1, f"base image {base}"),
        ("build", "python-cpu", "--wheels", "/no/such"): (2, "--wheels: there is no /no/such"),
        ("push", "mxnet-cpu"): (1, "is not on this machine"),
        ("push", FLAVOUR.name, "--registry", "127.0.0.1:9/team"): (
            1,
            "push of 127.0.0.1:9/team/cloudtrain/pytorch:",
        ),
    }
    for arguments, (wanted, message) in cases.items():
        status, answer = cloudtrain("image", *arguments, "--engine", built.engine.url)
        assert status == wanted, answer
        assert message in answer["error"]["message"]


@pytest.fixture
def registry(built: Built, tmp_path: Path) -> Iterator[Registry]:
    """Debian's docker-registry, in a container of the engine."""
    if shutil.which("docker-registry") is None:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "there is no docker-registry"
        pytest.skip("there is no docker-registry")
    port = 5321
    config = {
        "version": 0.1,
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": "/tmp/registry"}},
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    (tmp_path / "config.yml").write_text(json.dumps(config))
    container = built.client.create_container(
        "cloudtrain-test:latest",
        ["docker-registry", "serve", "/config.yml"],
        host_config=built.client.create_host_config(
            network_mode="host", binds=[f"{tmp_path}/config.yml:/config.yml:ro"]
        ),
    )
    built.client.start(container)
    try:
        listens = (
            f"import socket, time\nwhile socket.socket().connect_ex(('127.0.0.1', {port})): time.sleep(0.05)"
        )
        waiting = built.client.exec_create(container, ["timeout", "180", "python", "-c", listens])
        built.client.exec_start(waiting)
        yield Registry(f"127.0.0.1:{port}/team")
    finally:
        built.client.remove_container(container, force=True)


def test_push_and_find_again(built: Built, registry: Registry) -> None:
    sent: list[int] = []
    uri, digest = push_image(built.client, built.answer["id"], registry, FLAVOUR.image, sent.append)
    assert uri == f"{registry.address}/{FLAVOUR.image}"
    assert sum(sent) > 0
    for name in (FLAVOUR.image, uri):
        built.client.remove_image(name)
    assert find_local(built.client, FLAVOUR) is None
    built.client.pull(f"{uri.rpartition(':')[0]}@{digest}")
    built.client.pull(uri)
    assert local_image(JOB, built.client, gpu=False) == uri
