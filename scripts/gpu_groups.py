"""The groups of checks that ./scripts/gpu_checks runs: what a test on CPUs cannot show, and what may hang on a GPU."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import cloudtrain.distributed.torch as hvd
from cloudtrain.checkpoint import Checkpointer
from cloudtrain.contract import gpu_count
from cloudtrain.optimizers.torch import LAMB, LARS

START, TIMEOUT = 40, 15
"""Seconds for init, and for one collective."""
DEAD_SECONDS = 15
"""A dead rank must be named on the others within this many seconds."""

dry = False
device = "cpu"


@dataclass(frozen=True)
class Group:
    name: str
    ranks: int
    limit: float
    run: Callable[[], None]
    connects: bool = True
    """Whether init is called before."""
    dies: tuple[int, ...] = ()
    """Ranks that must end with an error."""
    own_hosts: bool = True
    """Whether each rank counts as another host for NCCL."""


def variables(group: Group, rank: int, port: int, *, dry: bool) -> dict[str, str]:
    """The environment of one rank."""
    found = {"OMP_NUM_THREADS": "1", "NCCL_DEBUG": "WARN"}
    if group.ranks > 1:
        found.update(
            RANK=str(rank), WORLD_SIZE=str(group.ranks), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(group.ranks),
            MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
        )  # fmt: skip
    if group.own_hosts and not dry:
        found.update(
            NCCL_HOSTID=f"rank{rank}", NCCL_SOCKET_IFNAME="lo", NCCL_IB_DISABLE="1", NCCL_MNNVL_ENABLE="0"
        )
    return found


def run(group: Group, rank: int, *, dry: bool) -> None:
    """Run a group in a rank."""
    globals().update(dry=dry, device="cpu" if dry else "cuda")
    if group.connects:
        hvd.init(start_timeout=START, timeout=TIMEOUT)
    group.run()


@contextmanager
def check(name: str) -> Iterator[list[str]]:
    """Print the outcome of the block as a line of JSON. The block adds details to the list."""
    detail: list[str] = []
    error, started = "", time.perf_counter()
    try:
        yield detail
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}".partition("\n")[0][:200]
    seconds = time.perf_counter() - started
    line = {"check": name, "error": error, "seconds": seconds, "detail": "; ".join(detail)}
    print(json.dumps(line), flush=True)


def synchronize() -> None:
    if not dry:
        torch.cuda.synchronize()


@contextmanager
def no_host_waits() -> Iterator[None]:
    """A wait of the host for the GPU in the block raises RuntimeError."""
    if dry:
        yield
        return
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def own(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of this rank's number, from 1."""
    return torch.full(shape, hvd.rank() + 1.0, device=device).to(dtype)


def total() -> int:
    return sum(range(1, hvd.size() + 1))


def model(layers: int = 2, width: int = 8) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    made = nn.Sequential(*(nn.Linear(width, width) for _ in range(layers))).to(device)
    plain = torch.optim.SGD(made.parameters(), lr=0.1, momentum=0.9)
    return made, hvd.DistributedOptimizer(plain, made.named_parameters())


def step(made: nn.Module, optimizer: torch.optim.Optimizer, inputs: Tensor) -> None:
    optimizer.zero_grad()
    made(inputs).square().mean().backward()
    optimizer.step()


def environment() -> None:
    with check("device") as detail:
        shm = os.statvfs("/dev/shm")
        if dry:
            detail.append(f"no GPU, torch {torch.__version__}")
        else:
            assert gpu_count() == torch.cuda.device_count(), (gpu_count(), torch.cuda.device_count())
            nccl = ".".join(map(str, torch.cuda.nccl.version()))  # type: ignore[no-untyped-call]
            detail.append(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, NCCL {nccl}")
        detail.append(f"/dev/shm {shm.f_blocks * shm.f_frsize >> 20} MiB")


def collectives() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.uint8, torch.int64):
        with check(f"allreduce of {dtype}"):
            for length in (3, 20_000):
                result = hvd.allreduce(own(length, dtype=dtype), op=hvd.Sum)
                assert result.double().unique().tolist() == [total()], result[:3]
    with check("allgather, alltoall, reducescatter, broadcast"):
        assert hvd.allgather(own(hvd.rank() * 5000 + 1, 2))[-1, 0] == hvd.size()
        assert hvd.alltoall(own(hvd.size() * 9000)).shape == (hvd.size() * 9000,)
        assert hvd.reducescatter(own(hvd.size() * 9000), op=hvd.Sum).unique().tolist() == [total()]
        assert hvd.broadcast(own(9000), 1).unique().tolist() == [2.0]
    with check("CPU tensors next to GPU tensors"):
        assert hvd.allreduce(torch.ones(20_000), op=hvd.Sum)[0] == hvd.size()
    with check("ten allreduces of 4 MB") as detail:
        tensor = own(1 << 20)
        synchronize()
        started = time.perf_counter()
        for _ in range(10):
            hvd.allreduce_(tensor)
        synchronize()
        detail.append(f"{(time.perf_counter() - started) * 100:.1f} ms each")
    hvd.shutdown()


def streams() -> None:
    """A collective on a side stream waits for what that stream still computes."""
    big = torch.randn(64 if dry else 4000, 64 if dry else 4000, device=device)
    for name, reduce in (
        ("allreduce", hvd.allreduce),
        ("allgather", hvd.allgather),
        ("in place", hvd.allreduce_),
    ):
        with check(f"{name} after a late kernel"):
            for _ in range(8):
                with torch.cuda.stream(None if dry else torch.cuda.Stream()):
                    late = torch.zeros(100_000, device=device)
                    product = big
                    for _ in range(5):
                        product = product @ big * 1e-4
                    late += 1 + product[0, 0] * 0
                    found = reduce(late).unique().tolist()
                assert found == [1.0], found[:3]
    hvd.shutdown()


def training() -> None:
    inputs = torch.ones(4, 64, device=device)
    made, optimizer = model(150, 64)
    for _ in range(3):
        step(made, optimizer, inputs)
    with check("a step does not wait for the GPU"), no_host_waits():
        step(made, optimizer, inputs)
    with check("backward of 300 parameters, next to DistributedDataParallel") as detail:
        synchronize()
        detail.append(f"{host_time(lambda: made(inputs).sum().backward()):.2f} ms")
        optimizer.synchronize()
        plain = nn.parallel.DistributedDataParallel(
            nn.Sequential(*(nn.Linear(64, 64) for _ in range(150))).to(device), gradient_as_bucket_view=True
        )
        detail.append(f"DDP {host_time(lambda: plain(inputs).sum().backward()):.2f} ms")
    with check("SyncBatchNorm does not wait for the GPU"):
        norm = hvd.SyncBatchNorm(3).to(device)
        images = torch.randn(4, 3, 8, 8, device=device)
        norm(images)
        with no_host_waits():
            norm(images)
    hvd.shutdown()


def host_time(work: Callable[[], object]) -> float:
    """Milliseconds until the call returns, while the GPU may still compute."""
    started = time.perf_counter()
    work()
    return (time.perf_counter() - started) * 1e3


def joining() -> None:
    made, optimizer = model()
    with check("ranks with fewer batches join"):
        for _ in range(3 if hvd.rank() == 0 else 1):
            step(made, optimizer, torch.ones(2, 8, device=device))
        assert hvd.join() == 0
    os._exit(0)


def death() -> None:
    made, optimizer = model()
    inputs = torch.ones(2, 8, device=device)
    step(made, optimizer, inputs)
    synchronize()
    if hvd.rank() == 1:
        os._exit(3)
    time.sleep(1)
    with check("a dead rank is named at the next step") as detail:
        started = time.perf_counter()
        try:
            for _ in range(2):
                step(made, optimizer, inputs)
                synchronize()
        except hvd.CollectiveError as error:
            detail.append(f"after {time.perf_counter() - started:.1f} s")
            assert "1" in str(error), error
        else:
            raise AssertionError("the steps continued")
        assert time.perf_counter() - started < DEAD_SECONDS
    os._exit(0)


def failing() -> None:
    """A script that fails during a collective ends, with its own exit status."""
    if hvd.rank() == 1:
        time.sleep(8)  # takes no part
        os._exit(0)
    hvd.allreduce_async_(own(20_000), name="never completed")
    raise ValueError("the script's own error")


def again() -> None:
    with check("shutdown and init in the same processes"):
        for _ in range(2):
            assert hvd.allreduce(own(20_000), op=hvd.Sum).unique().tolist() == [total()]
            hvd.shutdown()
            hvd.init(start_timeout=START, timeout=TIMEOUT)
    hvd.shutdown()


def process_sets() -> None:
    with check("a set of ranks 0 and 2, and Adasum of three ranks"):
        added = hvd.add_process_set([0, 2])
        if added.included():
            assert hvd.allreduce(own(20_000), op=hvd.Sum, process_set=added).unique().tolist() == [4.0]
        ones = torch.ones(20_000, device=device)
        torch.testing.assert_close(hvd.allreduce(ones, op=hvd.Adasum), ones)
    hvd.shutdown()


def sharing() -> None:
    """Without NCCL_HOSTID, two ranks on one GPU work through Gloo."""
    with check("two ranks on one GPU") as detail:
        assert hvd.allreduce(own(20_000), op=hvd.Sum).unique().tolist() == [total()]
        detail.append(dist.get_backend())
    hvd.shutdown()


def compiling() -> None:
    with check("torch.compile") as detail:
        made, optimizer = model()
        compiled = torch.compile(made, backend="eager" if dry else "inductor")
        for _ in range(3):
            step(compiled, optimizer, torch.ones(2, 8, device=device))
        synchronize()
        detail.append("backend eager" if dry else "backend inductor")
    os._exit(0)


def checkpoints() -> None:
    shape = (1 << 10, 1 << 8) if dry else (1 << 12, 1 << 12)
    state: dict[str, Any] = {
        f"w{number}": torch.full(shape, float(number), device=device) for number in range(8)
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        check("a save, and changes in place right after it") as detail,
    ):
        checkpointer = Checkpointer(folder)
        started = time.perf_counter()
        checkpointer.save(0, state)
        detail.append(f"save {time.perf_counter() - started:.2f} s")
        for tensor in state.values():
            tensor.add_(1000)
        synchronize()
        checkpointer.wait()
        detail.append(f"durable {time.perf_counter() - started:.2f} s")
        restored = checkpointer.restore(0).state
        assert all((restored[name].cpu() == float(name[1:])).all() for name in state)
        checkpointer.close()


def optimizers() -> None:
    for name, make in (("LARS", lambda found: LARS(found, 0.1)), ("LAMB", LAMB)):
        with check(f"{name} of 100 parameters does not wait for the GPU") as detail:
            parameters = [nn.Parameter(torch.randn(64, 64, device=device)) for _ in range(100)]
            optimizer = make(parameters)
            for parameter in parameters:
                parameter.grad = torch.randn_like(parameter)
            optimizer.step()
            optimizer.step()
            synchronize()
            with no_host_waits():
                detail.append(f"{host_time(optimizer.step):.1f} ms")


GROUPS = (
    Group("environment", 1, 40, environment, connects=False),
    Group("collectives", 2, 80, collectives),
    Group("streams", 2, 50, streams),
    Group("training", 2, 80, training),
    Group("joining", 2, 45, joining),
    Group("death", 2, 60, death, dies=(1,)),
    Group("failing", 2, 60, failing, dies=(0,)),
    Group("again", 2, 50, again),
    Group("process sets", 3, 60, process_sets),
    Group("sharing", 2, 45, sharing, own_hosts=False),
    Group("compiling", 2, 90, compiling),
    Group("checkpoints", 1, 60, checkpoints, connects=False),
    Group("optimizers", 1, 40, optimizers, connects=False),
)
