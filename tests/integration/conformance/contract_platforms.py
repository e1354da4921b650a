"""The platforms that implement the contract: how to run jobs on each, and to read their results."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import cloudtrain
from cloudtrain import Estimator, Job
from cloudtrain.errors import TrainingFailed
from cloudtrain.link.secret import VARIABLE, fresh_secret
from cloudtrain.storage import open_store

Seen = dict[int, dict[str, Any]]
"""The observations of each rank."""

PROCESSES: Mapping[str, Any] = {"distribution": {"processes": {"processes_per_host": 2}}}
TOOLKIT: Mapping[str, Any] = {"distribution": {"mpi": {"processes_per_host": 2}}, "runtime": "toolkit"}
"""The image contains a runtime: cloudtrain's, in place of Amazon's toolkit, runs a request for the toolkit."""

PACKAGE = Path(cloudtrain.__file__).parents[1]


@dataclass(frozen=True)
class Place:
    """An available platform."""

    estimator: Callable[..., Estimator]
    data: str
    """The URI of the channel ``train``."""
    out: str
    name: str = ""
    passes_arguments: bool = True
    """Whether the script gets the field ``arguments``."""
    hosts: tuple[str, str] = ("algo-1", "algo-2")
    """A cluster's nodes keep their names. ``{job}``: the name of the job."""

    def hosts_of(self, job_name: str) -> list[str]:
        return [host.format(job=job_name) for host in self.hosts]

    def run(self, job_name: str, **arguments: Any) -> Job:
        """A finished job of two hosts with two ranks each, successful or not."""
        estimator = self.estimator(instance_count=2, disable_output_compression=True, **arguments)
        job = estimator.fit({"train": self.data}, job_name=job_name, wait=False)
        with suppress(TrainingFailed):
            job.wait()
        return job

    def seen(self, job: Job) -> Seen:
        """The observations that the ranks of ``job`` wrote."""
        store = open_store(self.out)
        found = [entry.key for entry in store.list() if job.name in entry.key and "/seen-" in entry.key]
        return {int(key.rpartition("seen-")[2][:-5]): json.loads(store.read(key)) for key in found}


@contextmanager
def on_local(folder: Path, _: pytest.FixtureRequest) -> Iterator[Place]:
    yield _on_this_machine(folder, platform="local", **PROCESSES)


@contextmanager
def on_container(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """With the bundled runtime."""
    yield _on_this_machine(
        folder,
        platform="container",
        image_uri=request.getfixturevalue("base_image"),
        platform_options={"engine": request.getfixturevalue("engine").url},
        **PROCESSES,
    )


@contextmanager
def on_slurm(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    from slurm_cluster import Configuration

    cluster = request.getfixturevalue("slurm_clusters")(Configuration())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(cluster.conf))
        place = _on_this_machine(folder, platform="slurm", **PROCESSES)
        yield replace(place, hosts=("127.0.0.2", "127.0.0.3"))
    cluster.reset()


@contextmanager
def on_hosts(folder: Path, _: pytest.FixtureRequest) -> Iterator[Place]:
    """Two hosts that are reached through ssh."""
    from ssh_hosts import ssh_hosts

    (folder / "net").mkdir()
    with ssh_hosts(2, folder / "net") as hosts:
        options = {"hosts": "n2:2,n1:2", "ssh": hosts.ssh_from_outside("config")}
        place = _on_this_machine(folder, platform="hosts", platform_options=options)
        yield replace(place, hosts=("n2", "n1"))


def _on_this_machine(folder: Path, **arguments: Any) -> Place:
    data, out = (folder / "data").as_uri(), (folder / "out").as_uri()

    def estimator(**others: Any) -> Estimator:
        return Estimator("train.py", output_path=out, **arguments, **others)

    return Place(estimator, data, out)


@contextmanager
def on_kubernetes(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """As an Indexed Job, with data and outputs in S3."""
    from kube_fixtures import new_namespace

    s3_server = request.getfixturevalue("s3_server")
    bucket = f"test-{secrets.token_hex(6)}"
    s3_server.create_bucket(bucket)
    with (
        new_namespace(request.getfixturevalue("kube_cluster"), folder) as kubernetes,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in s3_server.env.items():
            patch.setenv(name, value)
        kubernetes.give_storage(s3_server)
        data, out = f"s3://{bucket}/data", f"s3://{bucket}/out"
        for path in (folder / "data").iterdir():
            open_store(data).write(path.name, path.read_bytes())

        def estimator(**others: Any) -> Estimator:
            fixed = {"platform": "kubernetes", "image_uri": "python", "output_path": out, **PROCESSES}
            return Estimator("train.py", **fixed, **others)

        yield Place(estimator, data, out, hosts=("{job}-0", "{job}-1"))


@contextmanager
def on_sagemaker(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    """With the bundled runtime."""
    from simulation import simulated_sagemaker

    with simulated_sagemaker(request.getfixturevalue("s3_server"), folder) as simulated:
        yield _on_simulated(simulated, folder, PROCESSES)


@contextmanager
def on_sagemaker_toolkit(folder: Path, request: pytest.FixtureRequest) -> Iterator[Place]:
    from simulation import s3_on, simulated_sagemaker

    s3_server = request.getfixturevalue("s3_server")
    with (
        simulated_sagemaker(s3_server, folder) as simulated,
        s3_on(simulated.instances.machines, s3_server, folder),
    ):
        environment = {**s3_server.env, "PYTHONPATH": str(PACKAGE), VARIABLE: fresh_secret()}
        simulated.instances.image = replace(simulated.instances.image, environment=environment)
        yield replace(_on_simulated(simulated, folder, TOOLKIT), passes_arguments=False)


def _on_simulated(simulated: Any, folder: Path, arguments: Mapping[str, Any]) -> Place:
    data = f"s3://{simulated.bucket}/data"
    for path in (folder / "data").iterdir():
        open_store(data).write(path.name, path.read_bytes())

    def estimator(source_dir: str, **others: Any) -> Estimator:
        made: Estimator = simulated.estimator_of(Path(source_dir), **arguments, **others)
        return made

    return Place(estimator, data, f"s3://{simulated.bucket}/out")


PLATFORMS: Mapping[str, Callable[[Path, pytest.FixtureRequest], AbstractContextManager[Place]]] = {
    "local": on_local,
    "hosts": on_hosts,
    "container": on_container,
    "slurm": on_slurm,
    "kubernetes": on_kubernetes,
    "sagemaker": on_sagemaker,
    "sagemaker-toolkit": on_sagemaker_toolkit,
}
