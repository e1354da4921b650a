"""The threads of saves and restores end, at whatever moment Ctrl-C comes."""

from __future__ import annotations

import contextlib
import signal
import threading
import time

import pytest

from cloudtrain.checkpoint.workers import WorkerPool


def test_an_interrupt_while_the_threads_start_leaves_none_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python would wait for them at its end."""
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        WorkerPool("interrupted")
        pytest.fail("Ctrl-C was lost")
    deadline = time.monotonic() + 60
    while any(thread.name == "interrupted" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_pool_that_is_dropped_before_its_block_leaves_no_threads() -> None:
    WorkerPool("dropped")
    deadline = time.monotonic() + 60
    while any(thread.name == "dropped" for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
