"""Links out of a container's folders are removed, because they would point to this machine's own files."""

from __future__ import annotations

from pathlib import Path

from cloudtrain.observe import EventLog
from cloudtrain.platforms.container.links import drop_outward_links
from cloudtrain.runtime.checkpoint_sync import CheckpointSync


def test_links_below_the_folders_of_a_host(tmp_path: Path) -> None:
    outside, base = tmp_path / "outside", tmp_path / "algo-1"
    outside.mkdir()
    (outside / "secret").write_text("secret")
    (base / "model" / "sub").mkdir(parents=True)
    (base / "input").mkdir()
    (base / "model" / "weights").write_text("weights")
    kept = {
        "model/same": "weights",
        "model/sub/up": "../weights",
        "model/sub/inside": "/opt/ml/model/weights",
        "model/dangling": "missing",
        "model/through": "folder/secret",
        "input/part": "/opt/cloudtrain/channels/part/a",
    }
    dropped = {
        "model/file": f"{outside}/secret",
        "model/folder": str(outside),
        "model/sub/by-dots": "../../../outside/secret",
        "model/disguised": "/opt/ml/../../../../etc/hostname",
        "output": str(outside),
    }
    for name, target in {**kept, **dropped}.items():
        (base / name).symlink_to(target)
    assert sorted(drop_outward_links(base)) == sorted(dropped)
    assert {path.relative_to(base).as_posix() for path in base.rglob("*") if path.is_symlink()} == set(kept)
    for name in ("model/same", "model/sub/up", "model/sub/inside"):
        assert (base / name).read_text() == "weights"
    assert not (base / "model/through").exists()  # the link in its target was removed
    assert (outside / "secret").read_text() == "secret"
    assert drop_outward_links(base) == []


def test_synced_checkpoints(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (tmp_path / "secret").write_text("secret")
    (here / "best.pt").write_text("best")
    (here / "latest.pt").symlink_to("best.pt")
    (here / "elsewhere.pt").symlink_to(tmp_path / "secret")
    CheckpointSync(here, there.as_uri(), EventLog(tmp_path / "events", "supervisor"), whole=True).flush()
    assert {path.name: path.read_text() for path in there.iterdir()} == {
        "best.pt": "best",
        "latest.pt": "best",
    }
