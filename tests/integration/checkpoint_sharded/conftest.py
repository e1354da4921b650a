"""A fixture for both kinds of storage. Makes the proxy of the kills importable."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "checkpoint_faults"))


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URI for checkpoints: a folder, or a bucket of a real S3 server."""
    if request.param == "file":
        return (tmp_path / "checkpoints").as_uri()
    return f"s3://{request.getfixturevalue('s3')}/run"
