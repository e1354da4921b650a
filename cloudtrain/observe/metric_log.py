"""Metrics that a script logs: ``cloudtrain.log(step=10, loss=0.3)``.

A call puts the values in memory. A thread appends them to a file next to the rank's heartbeat, and the runtime of the
host reads it: see `cloudtrain.runtime.logged_metrics`. So neither a slow disk nor a GPU delays a step. Each line of the
file is a list in JSON: the rank, and its calls. A call is a list, too: the time in seconds since the epoch, the step,
and the values by name.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any, Callable

from cloudtrain._system.files import open_to_append
from cloudtrain._system.processes import after_fork_in_child
from cloudtrain.observe import steady
from cloudtrain.observe.heartbeat import VARIABLE
from cloudtrain.observe.progress import current_rank, own_progress

INTERVAL = 1.0
"""Seconds between two writes. A killed rank loses the values that were not written."""
BATCH = 100
"""Values in one line, but for a call with more. After each, the script's threads run: a long one would delay a step."""
MOST_WAITING = 200_000
"""Calls that are kept in memory while the disk fails or is slow. Later ones are dropped."""
REPORT_SECONDS = 0.1
"""The least seconds between two reports of the job's progress."""
EXIT_SECONDS = 5.0
"""The most seconds that the end of a script waits for the last write."""
LONGEST_NAME = 255

_NAME = re.compile(rf"[^\x00-\x1f\x7f]{{1,{LONGEST_NAME}}}")
_Pending = Callable[[], float]
"""Returns a value that a GPU may not have computed yet."""


def metrics_path(heartbeat_path: str) -> str:
    """The file of a rank's metrics, by that of its heartbeat."""
    return f"{heartbeat_path}.metrics"


class MetricLog:
    """The metrics that this process has logged, and the thread that writes them.

    Args:
        path: the file to append to.
        warn: called once with a sentence when values are lost.
    """

    def __init__(self, path: str, warn: Callable[[str], object]) -> None:
        self._path = path
        self._warn = warn
        self._warned = False
        self._calls = 0
        self._step = 0
        self._reported_at = 0.0
        self._waiting: deque[tuple[float, int, dict[str, float | _Pending]]] = deque()
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()
        self._names: set[str] = set()
        self._is_cut = False
        """Whether the file ends within a line, because the disk was full."""

    def add(self, step: int | None, values: Mapping[str, Any]) -> None:
        """Keep the values of one call for the next write. Raises TypeError or ValueError as `log` does."""
        if not values.keys() <= self._names:
            for name in values:
                _check_name(name)
            self._names.update(values)
        checked = {
            name: value if type(value) is float else _number(name, value) for name, value in values.items()
        }
        self._step = step = self._calls if step is None else int(step)
        self._calls += 1
        now = steady.now()
        if len(self._waiting) < MOST_WAITING:
            self._waiting.append((now, step, checked))
        else:
            self._lost("the disk does not keep up")
        if now - self._reported_at >= REPORT_SECONDS:
            self._reported_at = now
            self._report()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cloudtrain-log", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write what waits, from the thread, within `EXIT_SECONDS`: the disk may hang."""
        self._report()
        self._ended.set()
        if self._thread is not None:
            self._thread.join(EXIT_SECONDS)

    def _report(self) -> None:
        """Report the last step as progress of the job, unless the script has."""
        progress = own_progress()
        if self._calls and progress.number != self._step:
            progress.step(self._step)

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self._write()
        self._write()

    def _write(self) -> None:
        """Write what waits. Does not raise."""
        rank = current_rank()
        while self._waiting:
            calls, count = [], 0
            while self._waiting and count < BATCH:
                moment, step, values = self._waiting.popleft()
                calls.append((round(moment, 3), step, values))
                count += len(values)
            try:
                self._append(json.dumps([rank, calls], default=_read, separators=(",", ":")) + "\n")
            except Exception as error:  # the script continues without its metrics
                self._lost(str(error))
            time.sleep(0)  # lets other threads run

    def _append(self, text: str) -> None:
        descriptor = open_to_append(self._path)
        try:
            data = (b"\n" if self._is_cut else b"") + text.encode()
            self._is_cut = os.write(descriptor, data) != len(data)
            if self._is_cut:
                raise OSError("the disk is full")
        finally:
            os.close(descriptor)

    def _lost(self, why: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(f"metrics of cloudtrain.log() are lost: {why}")


def log(values: Mapping[str, Any] | None = None, /, *, step: int | None = None, **named: Any) -> None:
    """Log metrics of a training step. Returns immediately; does nothing outside a job.

    Call it on one rank, or on all: cloudtrain shows the mean of all ranks, and the smallest and the largest value. No
    collective is needed. After a restart from a checkpoint, the values of repeated steps replace the earlier ones.

    Args:
        values: numbers by name, for names that are not identifiers: ``{"val/loss": 0.3}``.
        step: the number of the step; the number of earlier calls if it is None.
        named: numbers by name. A tensor with one element is a number, too. One on a GPU is read in the background.

    Raises:
        TypeError, ValueError: a value is not a number, or a name is empty or has control characters.
    """
    own = _log or _start()
    if own is not None:
        own.add(step, {**values, **named} if values else named)


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
    return _log


def _forget() -> None:
    global _log
    if _log is not None:
        atexit.unregister(_log.close)
        _log = None


def _warn(message: str) -> None:
    sys.stderr.write(f"[cloudtrain] {message}\n")


def _read(value: Any) -> float:
    """The number that a GPU has computed. Raises TypeError, as ``json`` expects, for anything else."""
    return float(value())


def _check_name(name: str) -> None:
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
    except (TypeError, ValueError, RuntimeError):  # torch raises RuntimeError for several elements
        kind = type(value).__name__
        raise TypeError(f"log(): {name} must be a number or a tensor with one element, not {kind}") from None


def _read_later(tensor: Any) -> _Pending:
    """A copy of the tensor as it is at this point of the GPU's stream; reading it here would wait for the GPU."""
    import torch

    copy = tensor.detach().clone()
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record()

    def read() -> float:
        copied.synchronize()
        return float(copy)

    return read
