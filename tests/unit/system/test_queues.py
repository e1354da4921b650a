"""The queue of the runtime's main threads, which signals interrupt."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading

import pytest

from cloudtrain._system.queues import SignalSafeQueue

INTERRUPTED = """
import queue, signal, time
from cloudtrain._system.queues import SignalSafeQueue

inbox = SignalSafeQueue()
signal.signal(signal.SIGALRM, lambda number, frame: time.sleep(0.3))
signal.setitimer(signal.ITIMER_REAL, 0.05)
try:
    inbox.get(timeout=0.2)
except queue.Empty:
    print("empty")
"""


def test_a_handler_that_outlasts_the_timeout_does_not_make_it_endless() -> None:
    """`queue.SimpleQueue` hangs here."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=240)
    assert (done.stdout, done.stderr) == ("empty\n", "")


def test_items_arrive_in_order_from_handlers_and_threads() -> None:
    inbox: SignalSafeQueue[int] = SignalSafeQueue()
    threading.Timer(0.05, lambda: [inbox.put(number) for number in range(3)]).start()
    assert [inbox.get() for _ in range(3)] == [0, 1, 2]
    assert inbox.empty() and inbox.qsize() == 0
    with pytest.raises(queue.Empty):
        inbox.get_nowait()
    with pytest.raises(queue.Empty):
        inbox.get(timeout=0.01)


def test_every_item_reaches_one_of_several_readers() -> None:
    inbox: SignalSafeQueue[int | None] = SignalSafeQueue()
    found: list[int] = []

    def read() -> None:
        while (item := inbox.get()) is not None:
            found.append(item)

    readers = [threading.Thread(target=read) for _ in range(4)]
    for reader in readers:
        reader.start()
    for number in range(1000):
        inbox.put(number)
    for _ in readers:
        inbox.put(None)
    for reader in readers:
        reader.join(60)
    assert sorted(found) == list(range(1000))
