"""The thread that runs collectives while the script continues."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from cloudtrain.distributed.torch._thread_work import ThreadWork, WorkQueue


class Group:
    """In place of a process group, which aborts Python if a thread destroys it at exit."""

    def fail(self) -> None:
        raise ValueError("a rank has died")

    def end(self) -> None:
        pass


def waiting(work_queue: WorkQueue, run: Callable[[], None]) -> ThreadWork:
    """Work that the background does not notice."""
    future: Future[None] = Future()
    work = ThreadWork(future, "WORKER", work_queue._run_if_next)
    work_queue._waiting.append((run, future, work))
    return work


def test_a_thread_that_waits_does_the_next_work_itself() -> None:
    work_queue = WorkQueue("WORKER")
    threads: list[threading.Thread] = []
    waiting(work_queue, lambda: threads.append(threading.current_thread())).wait()
    assert threads == [threading.current_thread()]
    with pytest.raises(ValueError, match="a rank has died"):
        waiting(work_queue, Group().fail).wait()
    work_queue.run(lambda: threads.append(threading.current_thread()))
    assert threads == [threading.current_thread()] * 2, "the queue is free after a failure"


def test_a_thread_that_waits_for_later_work_leaves_the_order_as_it_is() -> None:
    work_queue = WorkQueue("WORKER")
    order: list[int] = []
    first = waiting(work_queue, lambda: order.append(1))
    second = work_queue.put(lambda: order.append(2))
    try:
        second.wait()
        assert order == [1, 2]
        assert first.is_completed()
    finally:
        work_queue.close()


@pytest.mark.parametrize("ending", ["end", "fail"])
def test_an_idle_thread_holds_nothing_of_its_last_work(ending: str) -> None:
    work_queue = WorkQueue("WORKER")
    group = Group()
    gone = threading.Event()
    weakref.finalize(group, gone.set)
    try:
        work = work_queue.put(getattr(group, ending))
        if ending == "fail":
            with pytest.raises(ValueError, match="a rank has died"):
                work.wait()
        else:
            work.wait()
        del group, work
        for _ in range(50):
            gc.collect()  # an error and its frames
            if gone.wait(0.1):
                break
        assert gone.is_set()
    finally:
        work_queue.close()
