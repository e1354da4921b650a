"""The configuration of a host: the URI of its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cloudtrain.contract import Paths
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
