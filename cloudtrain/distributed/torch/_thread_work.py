"""Work done by a thread, with the interface of the work of a ``torch.distributed`` backend."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from typing import Any, Callable

import torch

from cloudtrain.observe.timeline import recorder


class ThreadWork:
    """Work of a background thread, with the methods of ``torch.distributed.Work`` that are used here.

    Args:
        carrier: the name of the worker in the timeline.
        start: called by a waiting thread, and does the work in it unless the background thread has started it.
    """

    began: int | None = None
    """When the thread started it, in ns of the monotonic clock, if that is known."""

    def __init__(self, future: Future[None], carrier: str, start: Callable[[ThreadWork], None]) -> None:
        self._future = future
        self.carrier = carrier
        self._start = start

    def is_completed(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        if not self._future.done():
            self._start(self)
        self._future.result()

    def when_done(self, call: Callable[[], None]) -> None:
        """Call ``call`` on completion, in any thread."""
        self._future.add_done_callback(lambda _: call())


class StreamWork:
    """`ThreadWork` whose GPU kernels may still run once the thread is done.

    Args:
        ended: the CUDA event that the thread records last.
        device: the device of the kernels.
    """

    began: int | None = None

    def __init__(self, work: ThreadWork, ended: Any, device: torch.device) -> None:
        self._work = work
        self._ended = ended
        self._device = device
        self.carrier = work.carrier

    def is_completed(self) -> bool:
        return self._work.is_completed() and bool(self._ended.query())

    def wait(self) -> None:
        """Wait for the thread; the caller's current stream waits for the kernels."""
        self._work.wait()
        self._ended.wait(torch.cuda.current_stream(self._device))


class WorkQueue:
    """Runs one piece of work after another: in a thread, or sooner in one that waits for the next piece."""

    def __init__(self, carrier: str) -> None:
        self._carrier = carrier
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Callable[[], None], Future[None], ThreadWork]] = deque()
        self._busy = False
        self._thread: threading.Thread | None = None
        self._open = True

    def put(self, run: Callable[[], None]) -> ThreadWork:
        """Run it in the background."""
        future: Future[None] = Future()
        work = ThreadWork(future, self._carrier, self._run_if_next)
        with self._changed:
            self._waiting.append((run, future, work))
            if self._thread is None:
                # A daemon: a script that fails must be able to exit without waiting for other ranks.
                name = f"cloudtrain-{self._carrier.lower()}"
                self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return work

    def run(self, run: Callable[[], None]) -> None:
        """Run it and wait for it."""
        with self._changed:
            free = not self._busy and not self._waiting
            self._busy = self._busy or free
        if not free:
            self.put(run).wait()
            return
        try:
            run()
        finally:
            self._release()

    def _run_if_next(self, work: ThreadWork) -> None:
        with self._changed:
            if self._busy or not self._waiting or self._waiting[0][2] is not work:
                return
            self._busy = True
        self._run_next()
        self._release()

    def close(self) -> None:
        with self._changed:
            self._open = False
            self._changed.notify_all()

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: not self._busy and (self._waiting or not self._open))
                if not self._waiting:
                    self._thread = None
                    return
                self._busy = True
            self._run_next()
            self._release()

    def _run_next(self) -> None:
        # A method, so that its frame ends with the work: a process group that an idle thread refers to aborts Python at
        # exit.
        run, future, work = self._waiting.popleft()
        work.began = recorder.now()
        try:
            run()
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    def _release(self) -> None:
        with self._changed:
            self._busy = False
            if self._waiting or not self._open:
                self._changed.notify_all()
