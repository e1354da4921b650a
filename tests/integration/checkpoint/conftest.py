"""A fixture for both kinds of storage."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _outside_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST", "SAGEMAKER_JOB_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A URI for checkpoints: a folder, or a bucket of a real S3 server."""
    if request.param == "file":
        return (tmp_path / "checkpoints").as_uri()
    return f"s3://{request.getfixturevalue('s3')}/run 1/checkpoints"
