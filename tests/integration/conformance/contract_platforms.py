"""The platforms that keep the contract, each as a way to run one job and to read what it left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import cloudtrain
from cloudtrain import Estimator
from cloudtrain.storage import open_store
from cloudtrain.testing import S3Server

JOB = "conforms"

Seen = dict[int, dict[str, Any]]
"""What each rank has seen."""

PROCESSES: Mapping[str, Any] = {"processes": {"processes_per_host": 2}}
MPI: Mapping[str, Any] = {"mpi": {"processes_per_host": 2}}


def on_local(folder: Path, arguments: dict[str, Any], _: S3Server) -> Seen:
    out = (folder / "out").as_uri()
    estimator = Estimator("train.py", platform="local", distribution=PROCESSES, output_path=out, **arguments)
    return _run(estimator, (folder / "data").as_uri(), out)


def on_sagemaker(folder: Path, arguments: dict[str, Any], s3_server: S3Server) -> Seen:
    """Our runtime travels with the job."""
    from playing import played_sagemaker

    with played_sagemaker(s3_server, folder) as played:
        return _on_played(played, folder, {"distribution": PROCESSES, **arguments})


def on_sagemaker_toolkit(folder: Path, arguments: dict[str, Any], s3_server: S3Server) -> Seen:
    """The image has a runtime: ours, in place of Amazon's, reads the request that Amazon's would."""
    from playing import played_sagemaker, s3_on

    with (
        played_sagemaker(s3_server, folder) as played,
        s3_on(played.instances.machines, s3_server, folder),
    ):
        installed = {"PYTHONPATH": str(Path(cloudtrain.__file__).parents[1])}
        played.instances.image = replace(played.instances.image, environment={**s3_server.env, **installed})
        return _on_played(played, folder, {"distribution": MPI, "runtime": "toolkit", **arguments})


def _on_played(played: Any, folder: Path, arguments: dict[str, Any]) -> Seen:
    data = f"s3://{played.bucket}/data"
    for path in (folder / "data").iterdir():
        open_store(data).write(path.name, path.read_bytes())
    estimator = played.estimator_of(folder / "src", **arguments)
    return _run(estimator, data, f"s3://{played.bucket}/out")


def _run(estimator: Estimator, data: str, out: str) -> Seen:
    job = estimator.fit({"train": data}, job_name=JOB, logs=False)
    assert job.failure is None
    store = open_store(out)
    found = [entry.key for entry in store.list() if "/seen-" in entry.key]
    return {int(key.rpartition("seen-")[2][:-5]): json.loads(store.read(key)) for key in found}


PLATFORMS = {"local": on_local, "sagemaker": on_sagemaker, "sagemaker-toolkit": on_sagemaker_toolkit}
