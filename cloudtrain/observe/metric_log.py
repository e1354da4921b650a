"""Metrics that a script logs: ``cloudtrain.log(step=10, loss=0.3)``.

A call puts the values in memory. A thread appends them to a file next to the rank's heartbeat, and the runtime of the
host reads it: see `cloudtrain.runtime.logged_metrics`. The thread also reports the last step as the job's progress.
Neither a slow disk nor a GPU can therefore delay a step.

Each line of the file has many calls, by columns: a list in JSON of

- the rank,
- the time, in seconds since the epoch, at which the clock of the calls was 0,
- the times of the calls on that clock,
- the steps of the calls,
- the distinct lists of names,
- for each call, the position of its list of names,
- the values of all calls.

Times and values are the doubles of this machine in hexadecimal digits. This is ten times faster than an object in JSON
for each call, so that the training waits for the interpreter less.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import math
import os
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from time import monotonic
from typing import Any, Callable

from cloudtrain._system.files import append_lines, open_to_append
from cloudtrain._system.patterns import pattern
from cloudtrain._system.processes import after_fork_in_child
from cloudtrain.observe import steady
from cloudtrain.observe.heartbeat import VARIABLE
from cloudtrain.observe.progress import current_rank, own_progress, whole_total

INTERVAL = 1.0
"""Seconds between two writes. A killed rank loses the values that were not written."""
MOST_CALLS, MOST_VALUES = 250, 1000
"""The most in one line, except for a call with more values. The script's threads run between two lines: a line takes
0.1 ms, and a longer one would delay a step. Handing over the interpreter costs as much as a short line."""
MOST_BYTES = 1 << 20
"""The most bytes in one write, which may exceed them by one line."""
MOST_WAITING = 200_000
"""Values that are kept in memory while the disk fails or is slow. Later ones are dropped."""
EXIT_SECONDS = 5.0
"""The most seconds that the end of a script waits for the last write."""
LONGEST_NAME = 255

_NAME = pattern(rf"[^\x00-\x1f\x7f]{{1,{LONGEST_NAME}}}")
_FLOATS = {float}
_Pending = Callable[[], float]
"""Returns a value that a GPU may not have computed yet."""

_Call = tuple[float, int, "dict[str, float | _Pending]"]
"""The time on the clock `time.monotonic`, the step, and the values."""


def metrics_path(heartbeat_path: str) -> str:
    """The file of a rank's metrics, which is next to that of its heartbeat."""
    return f"{heartbeat_path}.metrics"


class MetricLog:
    """The metrics that this process has logged, and the thread that writes them.

    `log` changes the public attributes itself: a method for that would cost a tenth of its time.

    Args:
        path: the file to append to.
        warn: called once with a sentence when values are lost.
    """

    def __init__(self, path: str, warn: Callable[[str], object]) -> None:
        self.calls = 0
        self.last: _Call = (0.0, 0, {})
        self.waiting: list[_Call] = []
        self.added = 0
        """The number of values that calls have added."""
        self.limit = MOST_WAITING
        """The limit of `added` by now. The thread raises it by the number of values that it has written."""
        self.check_at = 0.0
        """When to check that the thread is alive, on the clock of the calls."""
        self.names: set[str] = set()
        """The names that have been checked."""
        self._path = path
        self._warn = warn
        self._warned: set[str] = set()
        self._reported: int | None = None
        """The last step that was reported as progress of the job."""
        self._total: int | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    def checked(self, values: Mapping[str, Any]) -> dict[str, float | _Pending]:
        for name in values:
            if name not in self.names:
                _check_name(name)
        self.names.update(values)
        return {name: _number(name, value) for name, value in values.items()}

    def close(self) -> None:
        """Let the thread write the waiting values within `EXIT_SECONDS`: the disk may hang. Later calls repeat this.

        Where no thread can start, as in an atexit handler in Python 3.12, the calling thread writes.
        """
        self._ended.set()
        self.check_at = 0.0
        if self.waiting:
            self._ensure_thread()
        if self._thread is not None:
            self._thread.join(EXIT_SECONDS)
            if self._thread.is_alive():
                self.check_at = math.inf
                self.lost("the disk does not respond")

    def end(self) -> None:
        """Write each further call immediately: the script has ended, and atexit handlers make these calls."""
        self._ended.set()

    def expect(self, total_steps: int) -> None:
        """Set the last step of the training. Raises TypeError or ValueError."""
        if total_steps != self._total:
            self._total = own_progress().total = whole_total(total_steps)

    def check(self, now: float) -> None:
        """Ensure that calls are written. To be called at ``check_at``."""
        if self._ended.is_set():  # such as in an atexit handler
            self.close()
        else:
            self.check_at = now + INTERVAL
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        """Start the thread, or restart it if something in the script has ended it."""
        if self._thread is not None:
            if self._thread.is_alive():
                return
            if not self._ended.is_set():
                self._warn_once(
                    "the thread of cloudtrain.log() has ended unexpectedly, and was started again"
                )
        thread = threading.Thread(target=self._run, name="cloudtrain-log", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # there are too many
            if self._ended.is_set():
                self._run()
            else:
                self.lost(str(error))
        else:
            self._thread = thread

    def _report(self, *, is_last: bool) -> None:
        """Report the last step as progress of the job, unless the script does so itself."""
        progress = own_progress()
        if progress.number == self._reported:
            moment, step, _ = self.last
            if step != self._reported:
                self._reported = step
                progress.step(step, monotonic() - moment)
            if is_last:
                progress.report()
            else:
                progress.report_due()

    def _run(self) -> None:
        is_last = False
        while not is_last:
            self._report(is_last=is_last)
            is_last = self._ended.wait(INTERVAL)
            self._write(is_last=is_last)
        self._report(is_last=True)

    def _write(self, *, is_last: bool) -> None:
        """Write the waiting values. Those that cannot be written now wait for the next time."""
        while self.waiting:
            taken, lines = self._lines()
            try:
                descriptor = open_to_append(self._path)
                try:
                    append_lines(descriptor, b"".join(lines))
                finally:
                    os.close(descriptor)
            except OSError as error:
                if is_last:
                    self.lost(str(error))
                else:
                    self._warn_once("metrics of cloudtrain.log() cannot be written, and wait", str(error))
                return
            # not before: if something ends this thread, the next one writes them
            del self.waiting[: len(taken)]
            self.limit += sum([len(values) for _, _, values in taken])

    def _lines(self) -> tuple[list[_Call], list[bytes]]:
        """The first of the waiting calls, and their lines. Meanwhile, new calls are appended."""
        taken: list[_Call] = []
        rank, lines, size = current_rank(), [], 0
        while len(self.waiting) > len(taken) and size < MOST_BYTES:
            calls = self.waiting[len(taken) : len(taken) + MOST_CALLS]
            counts = [*accumulate([len(values) for _, _, values in calls])]
            calls = calls[: max(bisect_right(counts, MOST_VALUES), 1)]
            taken += calls
            try:
                line = _line(rank, calls)
            except Exception as error:  # raised by a tensor: the script continues without these values
                self.lost(str(error))
                continue
            lines.append(line.encode())
            size += len(line)
            time.sleep(0)  # lets other threads run
        return taken, lines

    def lost(self, why: str) -> None:
        self._warn_once("metrics of cloudtrain.log() are lost", why)

    def _warn_once(self, message: str, why: str = "") -> None:
        if message not in self._warned:
            self._warned.add(message)
            with contextlib.suppress(Exception):  # the script may have closed its output
                self._warn(f"{message}: {why}" if why else message)


def log(
    values: Mapping[str, Any] | None = None,
    /,
    *,
    step: int | None = None,
    total_steps: int | None = None,
    **named: Any,
) -> None:
    """Log metrics of a training step. Returns immediately; does nothing outside a job.

    Call it on one rank, or on all: cloudtrain shows the mean of all ranks, and the smallest and the largest value. No
    collective is needed. After a restart from a checkpoint, the values of repeated steps replace the earlier ones.

    Args:
        values: numbers by name, for names that are not identifiers: ``{"val/loss": 0.3}``.
        step: the number of the step; if None, the number of earlier calls.
        total_steps: the number of the last step, if it is known, with which cloudtrain shows the remaining time.
        named: numbers by name. A tensor with one element is a number, too. One on a GPU is read in the background.

    Raises:
        TypeError, ValueError: a value or ``step`` is not a number, a name is empty or has control characters, or
            ``total_steps`` is not a whole number from 1 on.
    """
    # fast path: most calls have floats under known names, and cost little more than an empty call
    own = _log
    if own is None:
        own = _start()
        if own is None:
            return
    if total_steps is not None:
        own.expect(total_steps)
    if values:
        named = {**values, **named}
    names = own.names
    for name in named:
        if name not in names or type(named[name]) is not float:
            named = own.checked(named)
            break
    if type(step) is not int:
        step = own.calls if step is None else _step(step)
    own.calls += 1
    now = monotonic()
    own.last = call = (now, step, named)
    if own.added < own.limit:
        own.added += len(named)
        own.waiting.append(call)
    else:
        own.lost("the disk does not keep up")
    if now >= own.check_at:
        own.check(now)


_log: MetricLog | None = None


def _start() -> MetricLog | None:
    """The log of this process, from its first call on; None outside a job. A forked child has its own."""
    global _log
    path = os.environ.get(VARIABLE)
    if path is None:
        return None
    _log = MetricLog(metrics_path(path), _warn)
    after_fork_in_child(_forget)
    atexit.register(_log.close)
    if not threading.main_thread().is_alive():  # in an atexit handler, in which no new one can be registered
        _log.end()
    if "multiprocessing.process" in sys.modules:
        from multiprocessing import parent_process, util

        if parent_process():  # it ends without atexit handlers, such as a worker of a data loader
            util.Finalize(None, _log.close, exitpriority=0)
    return _log


def _forget() -> None:
    global _log
    if _log is not None:
        atexit.unregister(_log.close)
        _log = None


def _warn(message: str) -> None:
    sys.stderr.write(f"[cloudtrain] {message}\n")


def _line(rank: int, calls: Sequence[_Call]) -> str:
    from array import array

    moments, steps, values = zip(*calls)
    names = [*map(tuple, values)]
    places = {each: place for place, each in enumerate(dict.fromkeys(names))}
    numbers: list[Any] = [*chain.from_iterable([each.values() for each in values])]
    if {*map(type, numbers)} - _FLOATS:
        numbers = [value if isinstance(value, float) else float(value()) for value in numbers]
    lists, kinds = ",".join(map(_names, places)), [places[each] for each in names]
    times, digits = (array("d", column).tobytes().hex() for column in (moments, numbers))
    return f'[{rank},{steady.now() - monotonic()!r},"{times}",{[*steps]},[{lists}],{kinds},"{digits}"]\n'


@functools.lru_cache(maxsize=64)
def _names(names: tuple[str, ...]) -> str:
    return json.dumps(names)


def _step(step: Any) -> int:
    try:
        return int(step)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise TypeError(f"log(): step must be a whole number, not {step!r}") from None


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"log(): the name of a metric must be a string, not {name!r}")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"log(): a metric needs a name of 1 to {LONGEST_NAME} printable characters, not {name!r}"
        )


def _number(name: str, value: Any) -> float | _Pending:
    if getattr(value, "is_cuda", False) and value.numel() == 1:
        return _read_later(value)
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        return float(value.detach() if hasattr(value, "detach") else value)
    except OverflowError:
        raise ValueError(f"log(): {name} is beyond the largest floating-point number") from None
    except (TypeError, ValueError, RuntimeError):  # torch raises RuntimeError for several elements
        kind = type(value).__name__
        raise TypeError(f"log(): {name} must be a number or a tensor with one element, not {kind}") from None


def _read_later(tensor: Any) -> _Pending:
    """Copy the tensor at this point of the GPU's stream, to be read later. Reading it here would wait for the GPU."""
    import torch

    copy = tensor.detach().clone()
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def read() -> float:
        copied.synchronize()
        return float(copy)

    return read
