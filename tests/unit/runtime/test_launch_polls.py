"""Watching ranks that run costs little: a thousand of them may share one machine."""

from __future__ import annotations

from pathlib import Path

from audit import opened_files

from cloudtrain.contract import RankSlot
from cloudtrain.runtime.launchers.launch import Launch, LaunchPlan
from cloudtrain.runtime.output import OutputMerger
from cloudtrain.runtime.run_folder import RankRecord, record_path


def test_a_record_is_read_when_it_has_changed(tmp_path: Path) -> None:
    """Each look at a rank, 33 times in a second, read its record twice."""
    slots = tuple(RankSlot.on_host(0, 1, 16))
    plan = LaunchPlan(slots, ("sleep", "60"), {}, ({},) * 16, tmp_path, tmp_path)
    with open(tmp_path / "merged", "wb") as target:
        launch = Launch(plan, OutputMerger(target.fileno(), tmp_path))
        launch.start()
        for slot, process in zip(slots, launch.processes, strict=True):
            RankRecord(process.pid, slot.rank).write(str(tmp_path), slot.local_rank)
        with opened_files() as opened:
            for _ in range(50):
                assert launch.poll() == []
                assert not launch.preempted(gone=False)
        read = [path for path in opened if path.endswith(".json")]
        assert sorted(read) == sorted(record_path(str(tmp_path), slot.local_rank) for slot in slots)
        process = launch.processes[5]
        RankRecord(process.pid, 5, exit_code=3, message="m").write(str(tmp_path), 5)
        process.kill()
        process.wait()
        [rank_exit] = launch.poll()
        assert rank_exit.rank == 5
        assert rank_exit.record is not None
        assert rank_exit.record.exit_code == 3
        launch.kill()
        assert len(launch.poll()) == 15
        launch.output.close()
