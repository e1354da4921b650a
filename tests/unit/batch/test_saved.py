"""The objects that count as a checkpoint that an attempt has saved."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.checkpoint.saved import Saved


@pytest.mark.parametrize(
    ("name", "is_new"),
    [
        ("step-000000000020/manifest.json", True),
        ("step-000000000020/x/tree.json", False),  # a save that was cut off
        ("elastic/0123456789abcdef/run-0/000000000017.pt", True),
        ("model.pt", True),
        ("old.pt", True),
        ("", False),
    ],
)
def test_what_is_saved(tmp_path: Path, name: str, is_new: bool) -> None:
    old = tmp_path / "step-000000000010" / "manifest.json"
    old.parent.mkdir()
    old.write_text("{}")
    (tmp_path / "old.pt").write_text("first")
    saved = Saved(tmp_path.as_uri())
    saved._before.result()
    if name:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("second")
    old.unlink()  # retention
    assert saved.is_new() == is_new


def test_a_folder_without_checkpoints_yet(tmp_path: Path) -> None:
    saved = Saved((tmp_path / "none").as_uri())
    assert not saved.is_new()


@pytest.mark.parametrize("uri", ["", "s3://a-bucket-that-nobody-has/x"])
def test_storage_that_does_not_answer_is_unknown(uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    monkeypatch.setattr("cloudtrain.checkpoint.saved.WAIT_SECONDS", 0.2)
    assert Saved(uri).is_new()
