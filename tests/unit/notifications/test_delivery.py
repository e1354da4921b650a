"""Sends what an outbox has: again after longer pauses, within bounds, and each place by itself."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from notification_servers import Receiver

from cloudtrain.runtime.notifications.delivery import FIRST_PAUSE, LONGEST_PAUSE, NOTE_SECONDS, Delivery
from cloudtrain.runtime.notifications.notification import Notification
from cloudtrain.runtime.notifications.outbox import NOTIFICATIONS, NOTIFICATIONS_LOCK, Outbox
from cloudtrain.runtime.notifications.rules import Rule


def notification(key: str = "a/end", at: float | None = None) -> Notification:
    return Notification.of(key, "failed", "a", "local", 0, time.time() if at is None else at, summary="why")


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_pauses_double_up_to_a_minute_through_an_outage_of_ten_minutes(tmp_path: Path) -> None:
    now = 0.0
    outbox, tried = Outbox(tmp_path), []
    outbox.post(notification(at=time.time() + 86400))
    with Receiver([503]).up() as receiver:
        delivery = Delivery(outbox, [Rule(webhook=receiver.url)], {}, clock=lambda: now)
        while now < 600:
            count = len(receiver.tried)
            assert delivery.step()
            until(lambda: delivery.step() and delivery.is_idle)
            if len(receiver.tried) > count:
                tried.append(now)
            now += 1
        receiver.statuses = [200]
        now += 2 * LONGEST_PAUSE
        until(lambda: not delivery.step())
    pauses = [after - before for before, after in pairwise(tried)]
    assert pauses[0] <= 2 * FIRST_PAUSE and 0.8 * LONGEST_PAUSE <= max(pauses) <= 1.2 * LONGEST_PAUSE + 1
    assert 12 <= len(tried) < 20 and len(receiver.posts) == 1
    assert outbox.read().due([Rule(webhook="x")]) == []
    assert (tmp_path / NOTIFICATIONS).read_text().count("HTTP 503") == 1


def test_an_outage_of_days_is_noted_once_an_hour(tmp_path: Path) -> None:
    now = 0.0
    outbox = Outbox(tmp_path)
    outbox.post(notification(at=time.time() + 86400))
    with Receiver([503, 502, 503]).up() as receiver:
        delivery = Delivery(outbox, [Rule(webhook=receiver.url)], {}, clock=lambda: now)
        while now < 3 * NOTE_SECONDS:
            until(lambda: delivery.step() and delivery.is_idle)
            now += 2 * LONGEST_PAUSE
    text = (tmp_path / NOTIFICATIONS).read_text()
    assert text.count("HTTP 502") == 1 and 3 <= text.count("HTTP 503") <= 4 and len(receiver.tried) > 80


def test_a_limit_of_threads_delays_a_notification(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.post(notification())
    with Receiver().up() as receiver:
        delivery = Delivery(outbox, [Rule(webhook=receiver.url)], {})
        threading.stack_size(1 << 47)  # more than the address space: no thread starts
        try:
            assert delivery.step()
        finally:
            threading.stack_size(0)
        delivery.run(30)
    assert len(receiver.posts) == 1


def test_a_signal_ends_a_hold(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.post(notification())
    began = time.monotonic()
    with Receiver([503]).up() as receiver:
        delivery = Delivery(outbox, [Rule(webhook=receiver.url)], {})
        delivery.run(60, lambda: len(receiver.tried) > 0)
    assert time.monotonic() - began < 50


def test_a_delivery_that_expires_has_a_reason(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.post(notification(at=time.time() - 10))
    with Receiver([500]).up() as receiver:
        delivery = Delivery(outbox, [Rule(webhook=receiver.url, retry_for=5)], {})
        delivery.run(30)
    assert len(receiver.tried) == 1  # late, but tried once
    [failed] = outbox.read().failed.values()
    assert failed.error.startswith("HTTP 500") and failed.again


def test_a_place_that_hangs_does_not_delay_the_others(tmp_path: Path) -> None:
    outbox, released = Outbox(tmp_path), threading.Event()
    for number in range(3):
        outbox.post(notification(f"a/{number}"))
    with Receiver(hangs=released).up() as slow, Receiver().up() as fast:
        delivery = Delivery(outbox, [Rule(webhook=slow.url), Rule(webhook=fast.url)], {})
        began = time.monotonic()
        while len(fast.posts) < 3:
            delivery.step()
            time.sleep(0.01)
        assert time.monotonic() - began < 45
        released.set()
        delivery.run(30)
    assert len(slow.posts) == 3 and len(fast.posts) == 3
    assert {post.headers["webhook-id"] for post in slow.posts} == {"a/0", "a/1", "a/2"}


def test_a_damaged_outbox_loses_no_notification_that_is_whole(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.post(notification("a/1"))
    with (tmp_path / NOTIFICATIONS).open("ab") as file:
        file.write(b'{"key": "a/1", "rule": 0, "se')  # the crash of a machine
    outbox.post(notification("a/2"))
    outbox.note_sent(("a/2", 0))
    with (tmp_path / NOTIFICATIONS).open("ab") as file:
        file.write(b'\xff\n[]\n{"notification": 1}\n{"key": "a/1", "rule": "x", "sent": 1}\n')
    assert [place[0].key for place in outbox.read().due([Rule(command=("x",))])] == ["a/1"]


def test_one_of_several_processes_holds_the_lock(tmp_path: Path) -> None:
    first, second = Outbox(tmp_path), Outbox(tmp_path)
    with first.held() as is_first:
        assert is_first and second.has_sender
        with second.held() as is_second:
            assert not is_second
    assert (
        not second.has_sender
        and os.stat(tmp_path / NOTIFICATIONS.replace("jsonl", "lock")).st_mode & 0o077 == 0
    )


def test_a_process_without_a_heartbeat_is_replaced_and_sends_nothing_more(tmp_path: Path) -> None:
    paused, second, third = Outbox(tmp_path), Outbox(tmp_path), Outbox(tmp_path)
    paused.post(notification("a/1"))
    with Receiver().up() as receiver, paused.held():
        paused.beat()
        rules, signs = [Rule(webhook=receiver.url)], second.signs()
        assert third.signs() == signs and second.take_over(signs)
        with second.held() as is_second:
            assert is_second and paused.is_taken_over and not second.is_taken_over
            assert not third.take_over(signs)  # it was watching, too
            assert not Delivery(paused, rules, {}).step()
            Delivery(second, rules, {}).run(60)
        with third.held() as is_third:
            assert is_third
    assert len(receiver.posts) == 1


def test_readers_do_not_count_as_senders(tmp_path: Path) -> None:
    first, second = Outbox(tmp_path), Outbox(tmp_path)
    with first.held():
        pass
    with (tmp_path / NOTIFICATIONS_LOCK).open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)  # as another `describe` does
        assert not second.has_sender


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_holds_nothing_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)
    with Outbox(tmp_path).held() as is_held:
        assert is_held
    assert not Outbox(tmp_path).has_sender
