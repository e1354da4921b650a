"""Which jobs hang silently, by what their ranks use and by their stacks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from cloudtrain.runtime.diagnose.hangs import BACKWARD, COLLECTIVE, OUTSIDE, STORAGE, Place, place_of
from cloudtrain.runtime.diagnose.silence import LOGGED, PRINTED, JobWatch, Silence, SilenceWatch
from cloudtrain.runtime.diagnose.tracers import Frame
from cloudtrain.runtime.sampling.idleness import (
    FILES,
    GPU,
    GPU_MEMORY,
    HOST_NETWORK,
    MEMORY,
    NETWORK,
    PROCESSOR,
    GpuUsage,
    HostUsage,
    IdleMeter,
    Usage,
    pause,
)

LIMIT = 300.0
STEP = pause(LIMIT)
MIB = 1 << 20

ALLREDUCE = Place(COLLECTIVE, "all_reduce at train.py:14")
BARRIER = Place(COLLECTIVE, "barrier at train.py:20")
LOADER = Place(OUTSIDE, "__getitem__ at train.py:10")
PUT = Place(STORAGE, "save at train.py:9")


def used(
    cpu: float = 0.0,
    moved: int | None = 0,
    memory: int | None = MIB,
    connections: Mapping[int, int] | None = None,
) -> Usage:
    return Usage({1: cpu}, None if moved is None else {1: moved}, memory, connections)


def host(
    rank: Usage | None, network: float | None = 0, gpus: Mapping[int, GpuUsage] | None = None
) -> HostUsage:
    return HostUsage({0: rank}, network, {} if gpus is None else gpus)


def meter_after(*readings: HostUsage) -> IdleMeter:
    meter = IdleMeter(LIMIT)
    for number, reading in enumerate(readings):
        meter.add(1000 + number * STEP, reading)
    return meter


def idle_after(*readings: HostUsage) -> float:
    return meter_after(*readings).idle()[0]


def test_a_rank_that_uses_nothing_is_idle() -> None:
    assert idle_after(*[host(used())] * 4) == 3 * STEP
    small = [
        host(used(number * 0.01 * STEP, number * 1000, MIB + number * 1000), number * 1000)
        for number in range(4)
    ]
    assert idle_after(*small) == 3 * STEP


@pytest.mark.parametrize(
    ("before", "after", "sign"),
    [
        (host(used()), host(used(cpu=0.1 * STEP)), PROCESSOR),
        (host(used()), host(used(moved=20_000 * int(STEP))), FILES),
        (host(used()), host(used(memory=3 * MIB)), MEMORY),
        (host(used()), host(used(), network=200_000 * STEP), HOST_NETWORK),
        (host(used(connections={7: 5})), host(used(connections={8: 200_000 * int(STEP)})), NETWORK),
        (host(used(), gpus={0: (0, 5)}), host(used(), gpus={0: (90, 5)}), GPU),
        (host(used(), gpus={0: (0, 5)}), host(used(), gpus={0: (0, 6)}), GPU_MEMORY),
    ],
    ids=["cpu", "files", "memory", "host-network", "network", "gpu", "gpu-memory"],
)
def test_a_rank_that_uses_anything_is_not(before: HostUsage, after: HostUsage, sign: str) -> None:
    meter = meter_after(before, before, after)
    assert (meter.idle()[0], meter.signs[0]) == (0, sign)


def test_traffic_of_other_programs_does_not_count() -> None:
    readings = [host(used(connections={7: 40 * number}), network=1e9 * number) for number in range(4)]
    assert idle_after(*readings) == 3 * STEP


@pytest.mark.parametrize(
    "reading",
    [
        host(None),
        host(used(moved=None)),
        host(used(memory=None)),
        host(used(), network=None),
        HostUsage({0: used()}, 0, None),
        host(used(), gpus={0: (None, 5)}),
        host(used(), gpus={0: (0, None)}),
    ],
)
def test_what_cannot_be_read_counts_as_a_sign_of_life(reading: HostUsage) -> None:
    assert idle_after(*[reading] * 9) == 0


@dataclass
class Output:
    heard: float = 0.0


def test_a_host_that_was_paused_gives_its_ranks_fresh_time() -> None:
    meter = IdleMeter(LIMIT)
    watch = SilenceWatch(LIMIT, 0.0, {PRINTED: Output()})
    for now in (STEP, 2 * STEP):
        meter.add(now, host(used()))
        assert watch.look(now, meter.idle) is None
    later = 10_000.0  # or its clock has jumped
    meter.add(later, host(used()))
    assert meter.idle() == {0: 0}
    reports = [watch.look(later + number * STEP, meter.idle) for number in range(11)]
    assert [report is not None for report in reports] == [False] * 10 + [True]


@pytest.mark.parametrize(
    ("used_to_answer", "is_idle"),
    [
        (used(cpu=0.5 * STEP), True),
        (used(memory=20 * MIB), True),
        (used(moved=1 << 30), True),
        (used(connections={1: 1 << 30}), False),
    ],
)
def test_what_a_rank_uses_to_answer_a_query_does_not_count(used_to_answer: Usage, is_idle: bool) -> None:
    meter = meter_after(*[host(used(connections={}))] * 4)
    meter.query(1000 + 3 * STEP + 1)
    meter.add(1000 + 4 * STEP, host(used_to_answer))
    assert meter.idle()[0] == (3 * STEP if is_idle else 0)
    later = used_to_answer._replace(cpu={1: STEP})
    meter.add(1000 + 5 * STEP, host(later))
    assert meter.idle()[0] == 0


def test_a_gpu_that_works_is_a_sign_of_life_also_during_a_query() -> None:
    meter = meter_after(*[host(used(), gpus={0: (0, 5)})] * 4)
    meter.query(1000 + 3 * STEP + 1)
    meter.add(1000 + 4 * STEP, host(used(cpu=STEP), gpus={0: (90, 5)}))
    assert (meter.idle(), meter.signs) == ({0: 0}, {0: GPU})


def test_frequent_queries_make_no_rank_idle_that_works() -> None:
    """Someone who looks at the stacks every few seconds ends no training on the CPU."""
    meter = IdleMeter(LIMIT)
    for number in range(30):
        meter.query(1000 + number * STEP)
        meter.add(1000 + number * STEP, host(used(cpu=number * STEP)))
    assert meter.idle()[0] < LIMIT


def test_a_host_reports_its_silence_and_the_end_of_it() -> None:
    output = Output()
    watch = SilenceWatch(LIMIT, 0.0, {LOGGED: Output(), PRINTED: output})
    idle, signs = {0: LIMIT, 1: 3.0}, {0: PROCESSOR}
    found = [watch.look(now, lambda: idle, [1], lambda: signs) for now in range(0, 301, int(STEP))]
    assert found == [None] * 10 + [Silence(LIMIT, {0: LIMIT}, PRINTED, {0: PROCESSOR})]
    assert found[-1] and Silence.of(found[-1].to_message()) == found[-1]
    output.heard = LIMIT + 1
    assert watch.look(LIMIT + 2, dict) is None, "not so soon"
    assert watch.look(LIMIT + STEP, lambda: {0: 0.0}) == Silence(STEP - 1, {0: 0.0}, PRINTED)
    assert watch.look(LIMIT + 2 * STEP, dict) is None
    off = SilenceWatch(0.0, 0.0, {PRINTED: output})
    assert [off.look(now, dict) for now in (1e3, 2e3, 3e3)] == [None] * 3


@pytest.mark.parametrize("ranks", [[["0", 1, ""]], [[-1, 1, ""]], [0], [[0, "x", ""]], [[0, 1]]])
def test_a_report_of_something_else_is_refused(ranks: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Silence.of({"seconds": 1, "ranks": ranks})


def watch_of(idle: Mapping[int, float], limit: float = LIMIT) -> JobWatch:
    """A job with one rank a host, on which nothing was printed."""
    watch = JobWatch([f"algo-{rank}" for rank in idle], limit)
    for rank, seconds in idle.items():
        watch.add(f"algo-{rank}", 0.0, Silence(LIMIT + 1, {rank: seconds}))
    return watch


def test_the_stacks_are_taken_when_no_host_shows_a_sign_of_life() -> None:
    assert watch_of({0: 400, 1: 0}).is_due(1.0)
    assert not watch_of({0: 299, 1: 299}).is_due(1.0)
    assert not watch_of({0: 400, 1: 400}, limit=0).is_due(1.0)
    watch = watch_of({0: 400, 1: 400})
    assert not watch.is_due(1000.0), "the reports are old"
    watch.add("algo-1", 1.0, Silence(3, {1: 400}))
    assert not watch.is_due(1.0)
    watch.add("algo-1", 2.0, Silence(300, {1: 400}))
    assert watch.is_due(2.0)
    assert not watch.is_due(3.0), "not again immediately"


@pytest.mark.parametrize(
    ("places", "idle", "blamed"),
    [
        ([ALLREDUCE, LOADER, ALLREDUCE], [400] * 3, "1"),
        ([ALLREDUCE, LOADER, ALLREDUCE], [0, 400, 0], "1"),  # NCCL computes while it waits
        ([ALLREDUCE, BARRIER, ALLREDUCE], [400] * 3, "1"),
        ([Place(BACKWARD, "a backward pass"), ALLREDUCE, LOADER], [400] * 3, "2"),
        ([ALLREDUCE, ALLREDUCE, ALLREDUCE], [400] * 3, "0-2"),
        ([LOADER, LOADER, LOADER], [400] * 3, "0-2"),
        ([LOADER, Place(OUTSIDE, "read at train.py:3"), LOADER], [400] * 3, "1"),
        ([LOADER], [400], "0"),
        ([ALLREDUCE, PUT, ALLREDUCE], [400] * 3, "1"),
    ],
)
def test_the_odd_rank_is_named(places: list[Place], idle: list[float], blamed: str) -> None:
    watch = watch_of(dict(enumerate(idle)))
    assert watch.is_due(1.0)
    stacks = {rank: (place, f"stack {rank}") for rank, place in enumerate(places)}
    found = watch.judge(stacks)
    if 0 in idle:  # look once more
        assert found is None
        assert watch.is_due(1.0 + STEP)
        found = watch.judge(stacks)
    assert found
    assert (found.ranks, found.host, found.stack) == (blamed, f"algo-{found.rank}", f"stack {found.rank}")
    assert found.cause == ("storage" if PUT in places else "script")
    assert not watch.is_due(1000.0)


@pytest.mark.parametrize(
    ("places", "idle"),
    [
        ([LOADER, ALLREDUCE], [0, 400]),  # it compiles, and the other waits for it
        ([Place(BACKWARD, "a backward pass"), ALLREDUCE], [0, 400]),
    ],
    ids=["compiles", "computes"],
)
def test_a_rank_that_works_does_not_hang(places: list[Place], idle: list[float]) -> None:
    watch = watch_of(dict(enumerate(idle)))
    assert watch.is_due(1.0)
    assert watch.judge({rank: (place, "") for rank, place in enumerate(places)}) is None
    assert not watch.is_due(2.0), "the ranks are not disturbed again immediately"


def test_a_rank_that_computes_is_not_taken_for_one_that_waits() -> None:
    watch = watch_of({0: 0, 1: 400})
    for line in range(9):
        stack = f"all_reduce (train.py:{line})"
        assert watch.judge({0: (Place(COLLECTIVE, stack), stack), 1: (LOADER, "")}) is None
    frame = Frame("get_rank", "/env/site-packages/torch/distributed/distributed_c10d.py", 9)
    assert place_of([frame, Frame("<module>", "/code/train.py", 5)]) == Place(OUTSIDE)


def test_a_hang_is_over_with_the_first_sign_of_life() -> None:
    watch = watch_of({0: 400, 1: 400})
    watch.judge({0: (ALLREDUCE, ""), 1: (LOADER, "")})
    assert not watch.sign
    watch.add("algo-1", 9.0, Silence(LIMIT + 9, {1: 0.0}, LOGGED, {1: NETWORK}))
    assert watch.sign == "rank 1 on algo-1 used the network"
    watch.add("algo-1", 9.0, Silence(LIMIT + 9, {1: 409.0}))
    assert not watch.sign
    watch.add("algo-0", 9.0, Silence(1.0, {0: 400.0}, LOGGED))
    assert watch.sign == "a rank on algo-0 logged a value"


def test_a_rank_without_a_stack_is_named_with_its_state() -> None:
    watch = watch_of({0: 400})
    found = watch.judge({0: (Place(OUTSIDE, "sleeps uninterruptibly in the kernel"), "")})
    assert found
    assert str(found).endswith("rank 0 on algo-0: sleeps uninterruptibly in the kernel")


def test_a_rank_that_has_ended_is_named() -> None:
    watch = watch_of({0: 400})
    found = watch.judge({0: (ALLREDUCE, ""), 1: (Place(OUTSIDE), "")}, ended=[1])
    assert found
    assert (
        str(found)
        == "no sign of life for 5 min: rank 1 ended with exit code 0, and the others wait in a collective"
    )


def test_ranks_that_are_not_known_are_not_blamed_on_others() -> None:
    found = watch_of({0: 400, 1: 400}).judge({0: (ALLREDUCE, "")})
    assert found
    assert "rank 1 did not show a stack, and the others wait in a collective" in str(found)
    assert watch_of({0: 400}).judge({0: (ALLREDUCE, ""), 1: (LOADER, "")}) is None, "it may be at work"


def test_calls_that_wait_for_storage() -> None:
    site = "/env/lib/python3.11/site-packages"
    frames = [
        Frame("wait", "/lib/python3.11/threading.py", 3),
        Frame("result", f"{site}/cloudtrain/checkpoint/checkpointer.py", 7),
        Frame("<module>", "/opt/ml/code/train.py", 9),
    ]
    assert place_of(frames) == Place(STORAGE, "result at train.py:9")
    assert place_of([Frame("read", f"{site}/botocore/x.py", 1), *frames[2:]]).kind == STORAGE
    assert place_of(frames[2:]).kind == OUTSIDE


def test_a_collective_that_is_recorded_is_named_and_not_its_recorder() -> None:
    site = "/env/lib/python3.11/site-packages"
    frames = [
        Frame("wait", f"{site}/torch/distributed/distributed_c10d.py", 2),
        Frame("<lambda>", f"{site}/cloudtrain/distributed/torch/_operations.py", 3),
        Frame("wait_for", f"{site}/cloudtrain/observe/timeline/recorder.py", 235),
        Frame("forward", f"{site}/cloudtrain/distributed/torch/differentiable.py", 207),
        Frame("apply", f"{site}/torch/autograd/function.py", 625),
        Frame("allreduce", f"{site}/cloudtrain/distributed/torch/differentiable.py", 67),
        Frame("call", f"{site}/cloudtrain/distributed/_api.py", 139),
        Frame("<module>", "/opt/ml/code/train.py", 9),
    ]
    assert place_of(frames) == Place(COLLECTIVE, "allreduce at train.py:9")
