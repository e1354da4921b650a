"""The exposed communication of a job that still records its timeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain.observe.timeline._writer import Writer
from cloudtrain.observe.timeline.clock import Clock
from cloudtrain.observe.timeline.recent import TAIL, exposed_share

MS = 1_000_000


def record(folder: Path, host: str, rank: int, steps: int, waits: int) -> Path:
    """A timeline without its end: steps of 100 ms each, which wait ``waits`` ms; the first half wait for all of it."""
    path = folder / "hosts" / host / "output" / "data" / "timeline" / f"rank{rank}.json"
    writer = Writer(path, rank, 2, Clock(steady=lambda: 0))
    for step in range(steps):
        began = 100 * MS * step
        writer.wait("MainThread", "gradients", began, began + (100 if step < steps // 2 else waits) * MS)
        writer.step("MainThread", step, began, began + 100 * MS)
    writer.flush()
    return path


def test_of_a_large_timeline_the_last_steps_count(tmp_path: Path) -> None:
    path = record(tmp_path, "algo-1", 0, 5000, 30)
    record(tmp_path, "algo-2", 1, 5000, 10)
    assert path.stat().st_size > 8 * TAIL
    assert exposed_share(str(tmp_path)) == pytest.approx(0.2)


def test_what_a_script_has_put_there_is_left_out(tmp_path: Path) -> None:
    path = record(tmp_path, "algo-1", 0, 100, 30)
    assert exposed_share(str(tmp_path / "none")) is None
    (path.parent / "link.json").symlink_to("/etc/passwd")
    (path.parent / "other.json").write_text(
        '[1,\n{"ts": 1},\n{"ts": "x", "ph": "X", "name": "STEP"},\nnull\n"\0"'
    )
    assert exposed_share(str(tmp_path)) == pytest.approx(0.65, abs=0.02)
