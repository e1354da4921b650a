"""The thread that runs collectives while the script continues."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest

from cloudtrain.distributed.torch._thread_work import WorkQueue


class Group:
    """In place of a process group, which aborts Python if a thread destroys it at exit."""

    def fail(self) -> None:
        raise ValueError("a rank has died")

    def end(self) -> None:
        pass


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
