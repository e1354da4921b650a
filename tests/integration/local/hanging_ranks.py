"""Ranks of ``torch.distributed`` that hang in many ways, forked from a process that has imported torch.

Prints, for each way, the stacks of all ranks as the runtime's report has them: JSON.
"""

from __future__ import annotations

import faulthandler
import fcntl
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

RANKS = 3
SETTLE_SECONDS = 1.0

Ready = Callable[[], object]


def sleep() -> None:
    time.sleep(600)


def loop() -> None:
    while True:
        pass


def read_pipe() -> None:
    os.read(os.pipe()[0], 1)


def lock() -> None:
    taken = threading.Lock()
    taken.acquire()
    taken.acquire()


def lock_of_a_file() -> None:
    folder = Path(os.environ["FOLDER"])
    first, second = (open(folder / "lock", "w") for _ in range(2))  # noqa: SIM115
    fcntl.flock(first, fcntl.LOCK_EX)
    fcntl.flock(second, fcntl.LOCK_EX)


def wait_for_item() -> None:
    queue.Queue[int]().get()


def run_program() -> None:
    subprocess.run(["sleep", "600"], check=False)


def receive() -> None:
    here, _there = socket.socketpair()
    here.recv(1)


def native_code() -> None:
    while True:
        torch.mm(torch.ones(300, 300), torch.ones(300, 300))


def paused() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class Stuck(Dataset[Any]):
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> int:
        time.sleep(600)
        return index


def load_data() -> None:
    next(iter(DataLoader(Stuck(), num_workers=1)))


OUTSIDE: dict[str, Callable[[], None]] = {
    function.__name__: function
    for function in (
        *(sleep, loop, read_pipe, lock, lock_of_a_file, wait_for_item, run_program, receive),
        *(native_code, paused, load_data),
    )
}
"""Actions of the last rank in place of the collective that the others wait in."""
BUSY = (loop.__name__, native_code.__name__)
"""Those that never rest."""


def all_reduce(rank: int, ready: Ready, hang: Ready, _other: Any) -> None:
    ready()
    if rank == RANKS - 1:
        hang()
    dist.all_reduce(torch.ones(3))


def another_order(rank: int, ready: Ready, _hang: Ready, other: Any) -> None:
    ready()
    if rank == RANKS - 1:
        dist.barrier(group=other)
    dist.all_reduce(torch.ones(3))
    dist.barrier(group=other)


def left_the_loop(rank: int, ready: Ready, _hang: Ready, other: Any) -> None:
    ready()
    for _ in range(1 if rank == RANKS - 1 else 2):
        dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(3), group=other)


def all_different(rank: int, ready: Ready, _hang: Ready, other: Any) -> None:
    ready()
    if rank == 0:
        dist.all_reduce(torch.ones(3))
    elif rank == 1:
        dist.barrier(group=other)
    else:
        dist.recv(torch.ones(3), src=0)


class Slow(torch.autograd.Function):
    """Hangs in the backward pass, in code of the script."""

    @staticmethod
    def forward(_context: Any, given: torch.Tensor, hang: Ready) -> torch.Tensor:
        Slow.hang = hang
        return given.clone()

    @staticmethod
    def backward(_context: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        Slow.hang()
        return gradient, None


def ddp_backward(rank: int, ready: Ready, hang: Ready, _other: Any) -> None:
    """The others wait in DDP's backward pass for a rank that has not begun it."""
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    loss = model(torch.ones(2, 3)).sum()
    ready()
    if rank == RANKS - 1:
        hang()
    loss.backward()


def ddp_in_backward(rank: int, ready: Ready, hang: Ready, _other: Any) -> None:
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    out = model(torch.ones(2, 3))
    loss = (Slow.apply(out, hang) if rank == RANKS - 1 else out).sum()
    ready()
    loss.backward()


def ddp_fewer_batches(rank: int, ready: Ready, _hang: Ready, _other: Any) -> None:
    """A rank has no batch left, and waits for the others at the end of the epoch."""
    model = DistributedDataParallel(torch.nn.Linear(3, 3))
    ready()
    if rank < RANKS - 1:
        model(torch.ones(2, 3)).sum().backward()
    dist.barrier(group=_other)


def ddp_raised_in_thread(rank: int, ready: Ready, _hang: Ready, _other: Any) -> None:
    """The thread that prepares the batches of a rank has died."""
    model, batches = DistributedDataParallel(torch.nn.Linear(3, 3)), queue.Queue[torch.Tensor]()

    def produce() -> None:
        if rank == RANKS - 1:
            raise ValueError("a bad sample")
        batches.put(torch.ones(2, 3))

    threading.Thread(target=produce).start()
    ready()
    model(batches.get()).sum().backward()


def rank(number: int, folder: Path, program: Callable[..., None], hang: Callable[[], None]) -> None:
    faulthandler.register(signal.SIGQUIT, open(folder / f"stacks-{number}", "w"), all_threads=True)  # noqa: SIM115
    os.environ["FOLDER"] = str(folder)
    dist.init_process_group("gloo", f"file://{folder}/store", rank=number, world_size=RANKS)
    other = dist.new_group()
    program(number, lambda: (folder / f"ready-{number}").touch(), hang, other)


def start(number: int, folder: Path, program: Callable[..., None], hang: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    try:
        rank(number, folder, program, hang)
    finally:
        os._exit(1)


OTHERS = (
    *(another_order, left_the_loop, all_different),
    *(ddp_backward, ddp_in_backward, ddp_fewer_batches, ddp_raised_in_thread),
)


def main(folder: Path) -> None:
    import torch._dynamo  # once for all ranks: each DistributedDataParallel would import it, for a second

    torch.set_num_threads(1)
    ways = {name: (all_reduce, hang) for name, hang in OUTSIDE.items()}
    ways |= {program.__name__: (program, sleep) for program in OTHERS}
    pids: dict[str, list[int]] = {}
    for name, (program, hang) in ways.items():
        (folder / name).mkdir()
        pids[name] = [start(number, folder / name, program, hang) for number in range(RANKS)]
    try:
        print(json.dumps(stacks_of(pids, folder)))
    finally:
        for pid in (pid for found in pids.values() for pid in found):
            os.killpg(pid, signal.SIGKILL)


def stacks_of(ways: dict[str, list[int]], folder: Path) -> dict[str, str]:
    deadline = time.monotonic() + 200
    ranks = [(name, number) for name in ways for number in range(RANKS)]
    waiting = [ways[name][number] for name, number in ranks if name not in BUSY or number < RANKS - 1]

    def wait(condition: Callable[[], object], what: str) -> None:
        while not (condition() and are_still(waiting)):
            assert time.monotonic() < deadline, f"waited for {what}"
            time.sleep(0.05)

    wait(lambda: all((folder / name / f"ready-{number}").exists() for name, number in ranks), "the ranks")
    for name, found in ways.items():
        assert all(os.waitpid(pid, os.WNOHANG) == (0, 0) for pid in found), f"a rank of {name} has ended"
        for pid in found:
            os.kill(pid, signal.SIGQUIT)
    dumped = [place for place in ranks if place != (paused.__name__, RANKS - 1)]
    wait(
        lambda: all((folder / name / f"stacks-{number}").stat().st_size for name, number in dumped), "stacks"
    )
    stacks = {}
    for name in ways:
        texts = [(folder / name / f"stacks-{number}").read_text() for number in range(RANKS)]
        stacks[name] = "\n".join(f"rank {number}:\n{text}" for number, text in enumerate(texts))
    return stacks


def are_still(pids: list[int]) -> bool:
    """Whether none of the processes works, or is about to, for `SETTLE_SECONDS`."""
    before = [_used(pid) for pid in pids]
    time.sleep(SETTLE_SECONDS)
    after = [_used(pid) for pid in pids]
    return not any(
        "R" in (old[0], new[0]) or new[1] > old[1] + 1 for old, new in zip(before, after, strict=True)
    )


def _used(pid: int) -> tuple[str, int]:
    """The state of a process, and the processor time that it has used, in ticks (proc(5))."""
    state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return state, int(fields[10]) + int(fields[11])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
