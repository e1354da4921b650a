"""A rank for `test_rank_stacks`: prepares itself as `cloudtrain.runtime.rank` does, and gets into one of many states.

stack_ranks.py FOLDER LOCAL STATE
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from pathlib import Path

from cloudtrain.runtime.rank import _dump_stacks_on_signal


def ready() -> None:
    Path(os.environ["CLOUDTRAIN_RUN_DIR"], f"ready-{os.environ['LOCAL_RANK']}").touch()


def computes() -> None:
    ready()
    while True:
        sum(range(1000))


def reads_a_pipe() -> None:
    """As from a file system that does not answer."""
    pipe = Path(os.environ["CLOUDTRAIN_RUN_DIR"], "pipe")
    os.mkfifo(pipe)
    ready()
    pipe.read_bytes()


def holds_the_interpreter_lock() -> None:
    here, _there = os.pipe()
    ready()
    ctypes.PyDLL(None).read(here, ctypes.create_string_buffer(1), 1)


def has_a_handler() -> None:
    """For SIGQUIT, which ends the process."""
    signal.signal(signal.SIGQUIT, lambda _number, _frame: os._exit(9))
    ready()
    time.sleep(600)


def stopped() -> None:
    ready()
    os.kill(os.getpid(), signal.SIGSTOP)


def starts(*, with_thread: bool) -> None:
    """Sleeps uninterruptibly: the kernel lets a process that starts a program wait until the program has begun."""
    pipe = Path(os.environ["CLOUDTRAIN_RUN_DIR"], f"pipe-{with_thread}")
    os.mkfifo(pipe)
    if with_thread:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    ready()
    os.posix_spawn(
        "/bin/true", ["true"], os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 0, str(pipe), os.O_RDONLY, 0)]
    )


def asleep() -> None:
    starts(with_thread=False)


def asleep_with_threads() -> None:
    starts(with_thread=True)


def recurse(depth: int) -> int:
    return recurse(depth - 1) if depth else 0


def has_busy_threads() -> None:
    def work() -> None:
        while True:
            recurse(60)
            threading.Thread(target=recurse, args=(30,)).start()

    for _ in range(4):
        threading.Thread(target=work, daemon=True).start()
    ready()
    while True:
        recurse(50)


def load_batch() -> None:
    time.sleep(600)


def has_workers() -> None:
    """Two forked ones, which hang, and another program."""
    import multiprocessing
    import subprocess

    fork = multiprocessing.get_context("fork")
    for _ in range(2):
        fork.Process(target=load_batch, daemon=True).start()
    with subprocess.Popen(["sleep", "600"]):
        ready()


def notices_signals() -> None:
    """Makes system calls in which it would notice a signal, and prints what happened after the test has written."""
    here, there = os.pipe()
    os.write(1, b"began\n")
    ready()
    print(os.read(0, 1), select.select([here], [], [], 0.2)[0], there)
    libc = ctypes.CDLL(None, use_errno=True)
    sys.stdout.flush()
    buffer = ctypes.create_string_buffer(1)
    print(libc.read(0, buffer, 1), buffer.raw, ctypes.get_errno(), flush=True)


if __name__ == "__main__":
    os.environ.update(CLOUDTRAIN_RUN_DIR=sys.argv[1], LOCAL_RANK=sys.argv[2])
    _dump_stacks_on_signal()
    globals()[sys.argv[3]]()
