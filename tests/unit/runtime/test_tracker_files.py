"""The files of trackers delay and fail nothing that matters more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from cloudtrain.contract import Host, Launcher, Settings
from cloudtrain.observe import EventLog
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.outputs import host_outputs, tracker_files
from cloudtrain.runtime.outputs.checkpoint_sync import CheckpointSync
from cloudtrain.runtime.outputs.host_outputs import OutputUpload
from cloudtrain.runtime.outputs.tracker_files import TrackerFiles, hurried_upload, last_upload
from cloudtrain.runtime.phases import Phases
from cloudtrain.runtime.supervisor.folder import JobFolder


@pytest.mark.parametrize("leads", [True, False])
def test_in_a_failed_job_they_are_last_and_take_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leads: bool
) -> None:
    monkeypatch.setattr(tracker_files, "HURRIED_SECONDS", 0.3)
    saved, out, log = tmp_path / "saved", tmp_path / "out", EventLog(tmp_path / "events", "algo-1")
    paths = JobFolder(tmp_path / "job").host("algo-1")
    paths.make()
    (paths.checkpoints / "last.pt").write_text("checkpoint")
    (paths.output / "data").mkdir(exist_ok=True)
    (paths.output / "data" / "table").write_text("result")
    sync = CheckpointSync(paths.checkpoints, saved.as_uri(), log)
    hosts = ("algo-1",) if leads else ("algo-0", "algo-1")
    settings = Settings(output_uri=out.as_uri())
    config = HostConfig(paths, settings, Host("algo-1", hosts), {}, (), {}, Launcher(), hosts)
    upload = OutputUpload(config, Phases(log), log, lambda message: None, sync, 0.0)
    with upload._kept[0]._busy:  # an upload that takes hours
        ending = threading.Thread(target=upload.run_after_failure, daemon=True)
        ending.start()
        ending.join(60)
        assert not ending.is_alive()
    assert (saved / "last.pt").exists() and (out / "output.tar.gz").exists() == leads
    assert "not all of the files of trackers" in (tmp_path / "events").read_text()


def test_an_upload_that_hangs_does_not_delay_the_end_of_a_failed_job_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_outputs, "STALLED_SECONDS", 1.5)
    log = EventLog(tmp_path / "events", "algo-1")
    paths = JobFolder(tmp_path / "job").host("algo-1")
    paths.make()
    sync = CheckpointSync(paths.checkpoints, (tmp_path / "saved").as_uri(), log)
    settings, hosts = Settings(stop_grace=0.0), ("algo-1",)
    config = HostConfig(paths, settings, Host("algo-1", hosts), {}, (), {}, Launcher(), hosts)
    upload = OutputUpload(config, Phases(log), log, lambda message: None, sync, 0.0)
    ending = threading.Thread(target=upload.run_after_failure, daemon=True)
    with sync._busy:  # an upload that takes hours
        ending.start()
        for _ in range(10):  # some of its bytes arrive
            time.sleep(0.2)
            sync._moved(1)
        assert ending.is_alive()
        ending.join(60)
    assert not ending.is_alive()
    assert "checkpoints and outputs: nothing has moved for 1.5 s" in (tmp_path / "events").read_text()


def broken(tmp_path: Path) -> TrackerFiles:
    """Its upload ends with an error that is neither OSError nor one of this package."""
    return TrackerFiles(tmp_path / "a\0b", tmp_path.as_uri(), EventLog(tmp_path / "events", "algo-1"))


@pytest.mark.parametrize("upload", [last_upload, hurried_upload])
def test_a_failed_upload_of_tracker_files_is_a_warning(
    tmp_path: Path, upload: Callable[[list[TrackerFiles]], list[str]]
) -> None:
    [warning] = upload([broken(tmp_path)])
    assert warning.startswith("cannot upload the files of trackers: ")


def test_a_limit_of_threads_is_a_warning(tmp_path: Path) -> None:
    threading.stack_size(1 << 47)  # more than the address space: no thread starts
    try:
        assert "thread" in hurried_upload([broken(tmp_path)])[0]
    finally:
        threading.stack_size(0)
