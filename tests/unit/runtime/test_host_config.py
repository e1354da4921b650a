"""The configuration of a host: the URI of its source."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.host_config import HostConfig


@pytest.mark.parametrize(
    ("named", "uri"),
    [
        ("s3://bucket/code/sourcedir.tar.gz", "s3://bucket/code/sourcedir.tar.gz"),
        ("/opt/ml/input/data/code/sourcedir.tar.gz", "file:///opt/ml/input/data/code/sourcedir.tar.gz"),
        ("/opt/ml/input/data/a b/s.tar.gz", "file:///opt/ml/input/data/a%20b/s.tar.gz"),
        ("", None),
    ],
)
def test_the_source_may_be_a_file_of_a_channel(tmp_path: Path, named: str, uri: str | None) -> None:
    paths = Paths(tmp_path)
    paths.make()
    document = {"sagemaker_submit_directory": json.dumps(named)}
    (paths.input_config / "hyperparameters.json").write_text(json.dumps(document))
    assert HostConfig.read(paths, {}).source_uri == uri


def test_an_interpreter_that_has_vanished_is_named(tmp_path: Path) -> None:
    paths = Paths(tmp_path)
    paths.make()
    config = HostConfig.read(paths, {})
    config.check_python()
    gone = str(tmp_path / "python")
    config = replace(config, settings=replace(config.settings, python=gone))
    with pytest.raises(
        InvalidJob, match=f"platform_options.python: there is no program '{gone}'\n  It was removed"
    ):
        config.check_python()


def test_a_run_that_a_service_started_has_the_name_that_sagemaker_gave_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = Paths(tmp_path)
    paths.make()
    monkeypatch.setenv("TRAINING_JOB_NAME", "pipelines-k3f9-Train-x1")
    assert HostConfig.read(paths, {}).job_name == "pipelines-k3f9-Train-x1"
    assert HostConfig.read(paths, {"CLOUDTRAIN_JOB_NAME": "mine"}).job_name == "mine"
