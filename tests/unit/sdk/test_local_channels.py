"""Channels that are files and folders on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain import Estimator, InvalidJob
from cloudtrain.testing import FakePlatform


@pytest.mark.parametrize("channel", ["nope", "/nowhere/at/all", "./nope"])
def test_a_missing_file_or_folder_is_named(channel: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    estimator = Estimator(tmp_path / "train.py", platform=FakePlatform())
    with pytest.raises(InvalidJob, match=f"^inputs.train: there is no file or folder {channel}, ") as caught:
        estimator.prepare({"train": channel})
    assert "Did you mean" not in caught.value.hint
    with pytest.raises(InvalidJob, match=f"^inputs.train: there is no file or folder {channel}, "):
        estimator.prepare({"train": {"s3_data": channel, "content_type": "text/csv"}})


def test_an_existing_folder_becomes_a_uri(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    estimator = Estimator(tmp_path / "train.py", platform=FakePlatform())
    job = estimator.prepare({"train": str(tmp_path), "valid": {"s3_data": str(tmp_path)}}).job
    assert job.to_dict()["inputs"] == {name: {"s3_data": tmp_path.as_uri()} for name in ("train", "valid")}
