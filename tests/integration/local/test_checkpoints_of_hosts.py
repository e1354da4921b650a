"""The plain files that each host of a job writes to its checkpoint folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from local_jobs import Run, wait_until, write

from cloudtrain import JobStatus
from cloudtrain.contract import Paths
from cloudtrain.observe import EventLog, read_events
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync, read_record, record_path
from cloudtrain.storage import open_store

SAVE = """
    import os, signal, sys, time
    from pathlib import Path
    from cloudtrain import environment

    folder, rank = Path(sys.argv[1]), environment.rank()

    def stop(*_):
        (folder / f"late-{rank}").write_text(str(rank))
        sys.exit(0)

    signal.signal(signal.SIGTERM, stop)
    (folder / "step").mkdir()
    (folder / "step" / f"rng_state_{rank}.pth").write_text(f"state {rank}")
    (folder / f"same-{rank}").write_text("first")
    if sys.argv[2] == "fail" and rank == 1:
        raise SystemExit(3)
    time.sleep(600)
"""

RESUME = """
    import shutil, sys
    from pathlib import Path
    from cloudtrain import environment

    folder, rank = Path(sys.argv[1]), environment.rank()
    print([path.read_text() for path in sorted(folder.glob("step/*"))], flush=True)
    if rank == 0:
        shutil.rmtree(folder / "step")
    (folder / f"same-{rank}").write_text("second")
"""


def test_a_later_job_finds_the_files_of_all_hosts(run: Run, s3: str) -> None:
    fields = {"instance_count": 2, "checkpoint_s3_uri": f"s3://{s3}/checkpoints"}
    store = open_store(f"s3://{s3}/checkpoints")
    states = [f"step/rng_state_{rank}.pth" for rank in (0, 1)]
    first = run(SAVE, arguments=["{checkpoint_dir}", "wait"], wait=False, **fields)
    wait_until(lambda: {*states} <= {entry.key for entry in store.list()}, "the files of a running job")
    first.stop()
    first.wait()
    assert first.status == JobStatus.STOPPED
    assert [store.read(f"late-{rank}") for rank in (0, 1)] == [b"0", b"1"]
    second = run(RESUME, arguments=["{checkpoint_dir}"], **fields)
    found = "['state 0', 'state 1']"
    assert sorted(second.logs().splitlines()) == [f"[rank {rank}] {found}" for rank in (0, 1)]
    keys = [entry.key for entry in store.list()]
    assert keys == ["late-0", "late-1", "same-0", "same-1", *states]
    assert [store.read(f"same-{rank}") for rank in (0, 1)] == [b"second", b"second"]


def test_a_failed_job_has_uploaded_the_files_of_all_hosts(run: Run, s3: str) -> None:
    uri = f"s3://{s3}/checkpoints"
    job = run(SAVE, arguments=["{checkpoint_dir}", "fail"], instance_count=2, checkpoint_s3_uri=uri)
    assert job.status == JobStatus.FAILED
    assert open_store(uri).read("step/rng_state_1.pth") == b"state 1"


def sync_of(host: str, folder: Path, there: Path) -> CheckpointSync:
    events = EventLog(folder / "events", host)
    return CheckpointSync(folder / host, there.as_uri(), events, host=host, record=folder / f"{host}.json")


def test_a_host_never_uploads_what_it_has_only_downloaded(tmp_path: Path) -> None:
    there = write(tmp_path / "there", "model", "old")
    leader, follower = (sync_of(host, tmp_path, there) for host in ("algo-1", "algo-2"))
    leader.restore()
    follower.restore()
    write(tmp_path / "algo-1", "model", "new")
    write(tmp_path / "algo-2", "rng_state_1.pth", "1")
    leader.finish()
    follower.finish()
    assert (there / "model").read_text() == "new"
    assert (there / "rng_state_1.pth").read_text() == "1"
    (there / "model").unlink()  # as by someone who removes old checkpoints
    follower.flush()
    assert not (there / "model").exists()


def test_a_later_upload_sends_only_what_is_new(tmp_path: Path) -> None:
    paths, there = Paths(tmp_path / "ml"), write(tmp_path / "there", "model", "old")
    paths.make()
    events = EventLog(tmp_path / "events", "algo-2")
    CheckpointSync(paths.checkpoints, there.as_uri(), events, record=record_path(paths)).restore()
    write(paths.checkpoints, "mine", "1")
    write(there, "model", "new, of another host")
    record = read_record(paths)
    assert record
    later = CheckpointSync(paths.checkpoints, there.as_uri(), events)
    later.resume(record)
    later.flush()
    assert (there / "model").read_text() == "new, of another host"
    assert (there / "mine").read_text() == "1"


@pytest.mark.parametrize("damaged", ["", "[]", '{"a": 1}', '{"a": [1, "x"]}', "[" * 100_000, None])
def test_a_damaged_record_is_none(tmp_path: Path, damaged: str | None) -> None:
    paths = Paths(tmp_path)
    paths.make()
    if damaged is None:
        (tmp_path / "elsewhere").write_text("{}")
        record_path(paths).symlink_to(tmp_path / "elsewhere")
    else:
        record_path(paths).write_text(damaged)
    assert read_record(paths) is None


def test_of_the_same_file_the_last_upload_remains(tmp_path: Path) -> None:
    there = tmp_path / "there"
    hosts = [sync_of(host, tmp_path, there) for host in ("algo-1", "algo-2")]
    for number, sync in enumerate(hosts):
        write(tmp_path / f"algo-{number + 1}", "trainer_state.json", str(number))
        sync.flush()
    hosts[0].flush()
    assert (there / "trainer_state.json").read_text() == "1"


def test_warnings_name_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cloudtrain.runtime.outputs.checkpoint_sync.SYNC_SECONDS", 0.05)
    (tmp_path / "there").touch()  # nothing can be written below a file
    write(tmp_path / "algo-2", "a", "1")
    sync = sync_of("algo-2", tmp_path, tmp_path / "there")
    sync.start()
    wait_until(lambda: read_events(tmp_path / "events"), "the warning")
    os.unlink(tmp_path / "there")
    (tmp_path / "algo-2" / "link").symlink_to("/etc/passwd")
    [skipped] = sync.finish()
    assert read_events(tmp_path / "events")[0]["message"].startswith("algo-2: cannot sync checkpoints")
    assert skipped.startswith("algo-2: ") and "link" in skipped
