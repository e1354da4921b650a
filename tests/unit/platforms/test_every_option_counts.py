"""No option of a platform is ignored: each of them changes the request."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from option_values import HOSTS, NEEDS, VALUES, own_options

from cloudtrain.platforms.base import Request
from cloudtrain.platforms.hosts import HostsPlatform
from cloudtrain.platforms.lsf import LsfPlatform
from cloudtrain.platforms.pbs import CobaltPlatform, PbsPlatform, TorquePlatform
from cloudtrain.platforms.slurm import SlurmPlatform
from cloudtrain.spec import TrainingJob

PLATFORMS = {
    kind.name: kind
    for kind in (SlurmPlatform, PbsPlatform, TorquePlatform, CobaltPlatform, LsfPlatform, HostsPlatform)
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
