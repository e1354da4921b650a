"""The courier of a job outlives a file system that does not answer, and a neighbour that holds its lock."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from notification_servers import Receiver

from cloudtrain.contract import JobStatus
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import NOTIFICATIONS_BEAT, SILENT_SECONDS, Outbox
from cloudtrain.runtime.notifications.rules import rules_of
from cloudtrain.runtime.supervisor.courier import LOOK_SECONDS, MACHINE, STEP, Courier, carry
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
            target=carry,
            args=(through_link, Outbox(through_link.path), dict(os.environ), closed, MACHINE),
            daemon=True,
        )
        courier.start()
        courier.join(1.0)
        assert courier.is_alive()
        (tmp_path / "new").symlink_to(folder.path.parent)
        (tmp_path / "new").replace(link)
        courier.join(60)
    assert not courier.is_alive() and [content["event"] for content in receiver.contents] == ["completed"]


def wait_for(found: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_courier_that_was_killed_is_started_again_and_sends_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cloudtrain.runtime.supervisor.courier.RESTART_SECONDS", 0.0)
    with Receiver().up() as receiver:
        folder = ended_job(tmp_path / "local", receiver.url)
        ended = folder.read_record()
        folder.write_record(replace(ended, status=JobStatus.RUNNING))
        outbox, rules = Outbox(folder.path), rules_of(folder.read_request())
        for event in ("preempted", "failed"):
            outbox.post(Notification.of(event, event, folder.name, "local", 0, time.time(), summary=event))
        lock = folder.lock()
        courier = Courier(folder, dict(os.environ), STEP)
        first = courier._process
        assert first
        wait_for(lambda: len(receiver.posts) == 2 and not outbox.read().due(rules))
        courier.keep()
        assert courier._process is first
        first.kill()
        wait_for(lambda: courier.keep() or courier._process is not first)  # type: ignore[func-returns-value]
        folder.write_record(ended)
        courier.close(60)
        assert lock
        os.close(lock)
    assert sorted(content["event"] for content in receiver.contents) == ["completed", "failed", "preempted"]
    assert folder.log.read_text().count("was killed: starting it again") == 1


def test_a_courier_that_was_killed_before_the_end_is_started_for_it(tmp_path: Path) -> None:
    with Receiver().up() as receiver:
        folder = ended_job(tmp_path / "local", receiver.url)
        with Outbox(folder.path).held():  # it sends nothing before it is killed
            courier = Courier(folder, dict(os.environ), STEP)
            assert courier._process
            courier._process.kill()
            courier._process.wait()
        courier.close(60)
    assert [content["event"] for content in receiver.contents] == ["completed"]


def test_a_courier_that_is_paused_is_replaced_and_sends_nothing_when_it_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Receiver().up() as receiver:
        folder = ended_job(tmp_path / "local", receiver.url)
        ended = folder.read_record()
        folder.write_record(replace(ended, status=JobStatus.RUNNING))
        outbox, lock = Outbox(folder.path), folder.lock()
        courier = Courier(folder, dict(os.environ), MACHINE)
        wait_for(lambda: outbox.has_sender and (folder.path / NOTIFICATIONS_BEAT).exists())
        [paused] = couriers(folder)
        os.kill(paused, signal.SIGSTOP)
        try:
            outbox.post(Notification.of("one", "failed", folder.name, "local", 0, time.time(), summary="one"))
            monkeypatch.setattr("cloudtrain.runtime.supervisor.courier.SILENT_SECONDS", 1.0)
            wait_for(lambda: courier.keep() or folder.log.exists())  # type: ignore[func-returns-value]
            # the other one has its ten seconds between two heartbeats
            monkeypatch.setattr("cloudtrain.runtime.supervisor.courier.SILENT_SECONDS", 600.0)
            wait_for(lambda: receiver.posts)
        finally:
            os.kill(paused, signal.SIGCONT)
        wait_for(lambda: paused not in couriers(folder))
        folder.write_record(ended)
        assert lock
        os.close(lock)
        courier.close(60)
        wait_for(lambda: not couriers(folder))
    assert [content["event"] for content in receiver.contents] == ["failed", "completed"]
    assert folder.log.read_text().count("is paused: starting another one") == 1


def test_a_supervisor_that_was_paused_with_its_courier_does_not_replace_it(tmp_path: Path) -> None:
    folder = ended_job(tmp_path / "local", "http://127.0.0.1:9")
    outbox, lock = Outbox(folder.path), folder.lock()
    courier = Courier(folder, dict(os.environ), MACHINE)
    wait_for(lambda: outbox.has_sender and (folder.path / NOTIFICATIONS_BEAT).exists())
    [paused] = couriers(folder)
    os.kill(paused, signal.SIGSTOP)
    try:
        courier._watched_at -= SILENT_SECONDS
        courier.keep()
        courier._watched_at -= 3 * SILENT_SECONDS
        courier.keep()
        assert not folder.log.exists()
    finally:
        os.kill(paused, signal.SIGKILL)
    assert lock
    os.close(lock)


def couriers(folder: JobFolder) -> list[int]:
    """The processes that send the notifications of a job."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if str(folder.path) in words and any("courier" in word for word in words):
            found.append(int(process.name))
    return found


ENDS_DESCENDANTS = """
import os, sys, time
from pathlib import Path
from cloudtrain.runtime.descendants import adopt_orphans, end_descendants
from cloudtrain.runtime.notifications.outbox import Outbox
from cloudtrain.runtime.supervisor.courier import MACHINE, Courier
from cloudtrain.runtime.supervisor.folder import JobFolder

adopt_orphans()
folder = JobFolder(Path(sys.argv[1]))
lock = folder.lock()  # the job runs
courier = Courier(folder, dict(os.environ), MACHINE)
deadline = time.monotonic() + 120
while not Outbox(folder.path).has_sender and time.monotonic() < deadline:
    time.sleep(0.05)
end_descendants()
assert Outbox(folder.path).has_sender
courier.close(60)
"""


def test_the_end_of_an_attempt_does_not_end_a_courier_that_was_started_again(tmp_path: Path) -> None:
    """A supervisor adopts orphans by then, and kills all its descendants."""
    with Receiver().up() as receiver:
        folder = ended_job(tmp_path / "local", receiver.url)
        subprocess.run([sys.executable, "-c", ENDS_DESCENDANTS, str(folder.path)], check=True, timeout=300)
        wait_for(lambda: receiver.posts)
    assert [content["event"] for content in receiver.contents] == ["completed"]


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
