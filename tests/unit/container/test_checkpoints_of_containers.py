"""The supervisor copies the checkpoints that containers write to a folder to the job's checkpoint URI."""

from __future__ import annotations

from pathlib import Path

from cloudtrain.observe import EventLog
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync


def test_a_manifest_is_copied_after_its_data(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    step = here / "step-000000000007"
    (step / "save").mkdir(parents=True)
    names = ["manifest.json", "save/tensors-00000.safetensors", "save/tree.json"]
    for name in names:
        (step / name).write_text(name)
    (here / "mine.pt").write_text("mine")
    sync = CheckpointSync(here, there.as_uri(), EventLog(tmp_path / "events", "supervisor"), whole=True)
    sync.flush()
    copied = {path: path.stat().st_mtime_ns for path in there.rglob("*") if path.is_file()}
    assert len(copied) == 4
    assert max(copied, key=lambda path: copied[path]).name == "manifest.json"

    there_again = tmp_path / "again"
    there_again.mkdir()
    CheckpointSync(there_again, there.as_uri(), EventLog(tmp_path / "events", "s"), whole=True).restore()
    assert sorted(path.name for path in there_again.rglob("*") if path.is_file()) == sorted(
        path.name for path in copied
    )
