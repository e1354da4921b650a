"""No option of a platform is ignored: each of them changes the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.common.platform_options import option_names
from cloudtrain.platforms.hosts import HostsPlatform
from cloudtrain.platforms.pbs import CobaltPlatform, PbsPlatform, TorquePlatform
from cloudtrain.platforms.pbs.options import LACKS, ONLY
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.spec import TrainingJob

CLUSTER: dict[str, Any] = {
    "folder": "/shared/other",
    "node_folder": "$TMPDIR",
    "account": "physics",
    "gpus": 2,
    "gpu_type": "a100",
    "mem": "8G",
    "modules": ["cuda"],
    "prologue": ["ulimit -n 4096"],
    "epilogue": ["echo $status"],
    "python": "/opt/python",
    "container": "apptainer",
    "container_mounts": ["/data"],
    "container_options": ["--fakeroot"],
    "container_home": True,
    "network_interface": "ib0",
    "master_port": 4321,
    "max_preemptions": 3,
}
SLURM: dict[str, Any] = {
    **CLUSTER,
    "profile": "theta",
    "clusters": "theta",
    "partition": "gpu",
    "qos": "high",
    "reservation": "class",
    "constraint": "ib",
    "nodelist": ["n1", "n2"],
    "exclude": "n3",
    "exclusive": True,
    "comment": "nightly",
    "wckey": "w",
    "nice": 0,
    "licenses": "matlab",
    "switches": "1@10",
    "segment": 2,
    "begin": "now+1hour",
    "deadline": "2030-01-01",
    "mail_user": "me@example.org",
    "mail_type": ["END", "FAIL"],
    "gpu_style": "gpus-per-node",
    "gres": "gpu:1",
    "cpus_per_task": 4,
    "mem_per_gpu": "4G",
    "mem_per_cpu": "1G",
    "tmp": "10G",
    "time": "1-00:00:00",
    "array_parallelism": 2,
    "requeue": "never",
    "sbatch": {"contiguous": True},
    "srun": ["--network=ib"],
    "launcher_srun": "pmix",
    "poll_seconds": 30,
}
PBS: dict[str, Any] = {
    **CLUSTER,
    "queue": "gpu",
    "project": "climate",
    "cpus": 4,
    "select": "1:ncpus=8",
    "place": "pack",
    "nodes": "n1+n2",
    "attrs": {"mcdram": "flat"},
    "directives": ["-l software=matlab"],
    "start": "ssh",
}
HOSTS: dict[str, Any] = {
    "hosts": "localhost:2,n2:2",
    "hostfile": "hosts.txt",
    "folder": "/shared/other",
    "python": "/opt/python",
    "ssh": "ssh -p 2222",
    "master_port": 4321,
    "max_preemptions": 3,
}
NEEDS: dict[str, dict[str, Any]] = {
    "gpu_type": {"gpus": 2},
    "gpu_style": {"gpus": 2},
    "container_mounts": {"container": "apptainer"},
    "container_options": {"container": "apptainer"},
    "container_home": {"container": "apptainer"},
}
"""The options without which an option means nothing."""
VALUES = {"slurm": SLURM, "pbs": PBS, "torque": PBS, "cobalt": PBS, "hosts": HOSTS}
PLATFORMS = {
    kind.name: kind for kind in (SlurmPlatform, PbsPlatform, TorquePlatform, CobaltPlatform, HostsPlatform)
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_option_changes_the_request(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = tmp_path / "config.yaml"
    config.write_text("slurm: {profiles: {kraken: {folder: /shared}, theta: {partition: main}}}")
    monkeypatch.setenv("CLOUDTRAIN_CONFIG", str(config))
    (tmp_path / "hosts.txt").write_text("localhost slots=3\n")
    common: dict[str, Any] = {"slurm": {"profile": "kraken"}, "hosts": {"hosts": "localhost"}}.get(
        platform, {}
    )
    ignored = []
    for name in own_options(platform):
        without = {**common, **NEEDS.get(name, {})}
        given = {name: HOSTS[name]} if name == "hostfile" else {**without, name: VALUES[platform][name]}
        if rendered(platform, name, given) == rendered(platform, name, without):
            ignored.append(name)
    assert ignored == []


def own_options(platform: str) -> list[str]:
    """The options of ``platform``, except for ``login``, which needs a login node: see tests/integration/ssh."""
    return [
        name
        for name in option_names(platform)
        if name != "login"
        and (VALUES[platform] is not PBS or ONLY.get(name, platform) == platform)
        and name not in LACKS.get(platform, ())
    ]


def rendered(platform: str, name: str, options: Mapping[str, Any]) -> str:
    """All that is handed to the platform for a job with ``options``."""
    described: dict[str, Any] = {
        "entry_point": "train.py",
        "job_name": "a-job",
        "platform": platform,
        "platform_options": dict(options),
    }
    if "container" in options:
        described["image_uri"] = "python:3.12"
    if name == "launcher_srun":
        described["distribution"] = {"mpi": {"enabled": True}}
    runs = PLATFORMS[platform]()
    job = runs.resolve(TrainingJob.from_dict(described))
    if name == "array_parallelism":
        assert isinstance(runs, SlurmPlatform)
        return runs.render_array("a-job", [job])
    request: Request = runs.render(job)
    return json.dumps(request.body, sort_keys=True)
