"""``platform_options`` of one platform are refused on the others, which say where they belong."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudtrain.cli.submit import command
from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.container.render import ContainerOptions
from cloudtrain.platforms.sagemaker.render import check
from cloudtrain.spec import TrainingJob


def test_mount_source_needs_containers(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    result = CliRunner().invoke(command, [str(tmp_path / "train.py"), "--mount-source", "--dry-run"])
    assert isinstance(result.exception, InvalidJob)
    assert "mount_source: needs the platform container, but the job runs on local" in str(result.exception)
    assert "--platform container" in result.exception.hint


def test_options_of_another_platform() -> None:
    with pytest.raises(
        InvalidJob,
        match="python: needs the platform local or hosts or slurm or pbs or torque or cobalt or lsf or kubernetes, but",
    ):
        ContainerOptions.of(TrainingJob(platform_options={"python": "python3"}))
    with pytest.raises(
        InvalidJob, match="memory: needs the platform container or kubernetes, but the job runs on sagemaker"
    ):
        check(TrainingJob(platform_options={"memory": "1g"}))
    with pytest.raises(InvalidJob, match="master_port: needs the platform container or local or hosts"):
        check(TrainingJob(platform_options={"master_port": 1}))
