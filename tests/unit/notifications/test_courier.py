"""The courier of a job outlives a file system that does not answer, and a neighbour that holds its lock."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

from notification_servers import Receiver

from cloudtrain.contract import JobStatus
from cloudtrain.runtime.notifications.outbox import Outbox
from cloudtrain.runtime.supervisor.courier import LOOK_SECONDS, MACHINE, Courier, carry
from cloudtrain.runtime.supervisor.folder import REQUEST, JobFolder
from cloudtrain.runtime.supervisor.record import RECORD, JobRecord


def ended_job(jobs: Path, url: str) -> JobFolder:
    folder = jobs / "train-1"
    folder.mkdir(parents=True)
    empty: dict[str, object] = {
        "channels": {},
        "settings": {},
        "environment": {},
        "hyperparameters": {},
    }
    numbers = {"host_count": 1, "max_retry_attempts": 0, "max_preemptions": 0}
    body = {**empty, **numbers, "instance_type": "local", "notify": [{"webhook": url}]}
    (folder / REQUEST).write_text(json.dumps(body))
    now = time.time()
    (folder / RECORD).write_bytes(JobRecord(JobStatus.COMPLETED, now, ended_at=now, exit_code=0).to_json())
    return JobFolder(folder)


def test_a_file_system_that_does_not_answer_ends_no_courier(tmp_path: Path) -> None:
    """A loop of links has the same effect: the folder is neither there nor gone."""
    closed, link = threading.Event(), tmp_path / "local"
    closed.set()
    with Receiver().up() as receiver:
        folder = ended_job(tmp_path / "jobs", receiver.url)
        link.symlink_to(link)
        through_link = JobFolder(link / folder.name)
        courier = threading.Thread(
            target=carry, args=(through_link, dict(os.environ), closed, MACHINE), daemon=True
        )
        courier.start()
        courier.join(1.0)
        assert courier.is_alive()
        (tmp_path / "new").symlink_to(folder.path.parent)
        (tmp_path / "new").replace(link)
        courier.join(60)
    assert not courier.is_alive() and [content["event"] for content in receiver.contents] == ["completed"]


def test_a_courier_waits_for_its_lock(tmp_path: Path) -> None:
    with Receiver().up() as receiver:
        folder = ended_job(tmp_path / "local", receiver.url)
        with Outbox(folder.path).held() as is_held:
            assert is_held
            courier = Courier(folder, dict(os.environ), MACHINE)
            time.sleep(4 * LOOK_SECONDS)
            assert not receiver.tried
        courier.close(60)
        deadline = time.monotonic() + 60
        while not receiver.posts and time.monotonic() < deadline:
            time.sleep(0.05)
    assert len(receiver.posts) == 1
