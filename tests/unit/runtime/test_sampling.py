"""Samples of a host: control groups of both versions, ranks, and what is recorded when."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.observe import EventLog, Sample, read_events
from cloudtrain.runtime.diagnose.machine_faults import memory_kill_count
from cloudtrain.runtime.run_folder import RankRecord
from cloudtrain.runtime.sampling.connections import read_connections
from cloudtrain.runtime.sampling.last_minute import Moment, describe, until_end_of
from cloudtrain.runtime.sampling.machine import Machine
from cloudtrain.runtime.sampling.sampler import FULL_RATE_SECONDS, Sampler
from cloudtrain.runtime.sampling.series import merge

MEMINFO = "MemTotal:  1000 kB\nMemFree: 1 kB\nMemAvailable:  400 kB\n"
V1, V2 = "4:memory,blkio:/slurm/job_7\n3:cpu,cpuacct:/slurm/job_7\n0::/\n", "0::/slurm/job_7\n"


def _machine(folder: Path, files: dict[str, str]) -> Machine:
    for name, text in {"proc/meminfo": MEMINFO, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(folder / "proc", folder / "groups", folder / "block")


@pytest.mark.parametrize(
    ("membership", "group", "files"),
    [
        (
            V1,
            "memory/slurm/job_7",
            (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "memory.max_usage_in_bytes",
                "total_inactive_file",
            ),
        ),
        (
            V1,
            "memory",
            (
                "memory.limit_in_bytes",
                "memory.usage_in_bytes",
                "memory.max_usage_in_bytes",
                "total_inactive_file",
            ),
        ),
        (V2, "slurm/job_7", ("memory.max", "memory.current", "memory.peak", "inactive_file")),
        (V2, "slurm", ("memory.max", "memory.current", "memory.peak", "inactive_file")),
        ("0::/\n", "", ("memory.max", "memory.current", "memory.peak", "inactive_file")),
    ],
    ids=["version 1", "container 1", "version 2", "the group above", "container 2"],
)
def test_memory_counts_against_the_limit_of_the_group(
    tmp_path: Path, membership: str, group: str, files: tuple[str, ...]
) -> None:
    limit, current, peak, cache = files
    machine = _machine(
        tmp_path,
        {
            "proc/self/cgroup": membership,
            f"groups/{group}/{limit}": "8000\n",
            f"groups/{group}/{current}": "5000\n",
            f"groups/{group}/{peak}": "6000\n",
            f"groups/{group}/memory.stat": f"cache 1\n{cache} 2000\n",
        },
    )
    assert (machine.memory_limit, machine.memory(), machine.memory_peak()) == (8000, 3000, 6000)


SLURM = "system.slice/slurmstepd.scope/job_7/step_0/user/task_0"
EVENTS = "low 0\nhigh 0\nmax 9120\noom 3\noom_kill {}\noom_group_kill 0\n"
STAT = "anon 4294967296\nfile 2147483648\nkernel 52428800\ninactive_anon 0\ninactive_file 1073741824\n"


def test_the_groups_of_a_task_of_slurm_on_version_2(tmp_path: Path) -> None:
    """The step has the limit. The task has counted one kill, and the job those of other steps, too."""
    files = {"proc/self/cgroup": f"0::/{SLURM}\n", "groups/cgroup.controllers": "cpuset cpu io memory pids\n"}
    kills = {"task_0": 1, "user": 1, "step_0": 1, "job_7": 3}
    parts = SLURM.split("/")
    for depth in range(1, len(parts) + 1):
        group = "groups/" + "/".join(parts[:depth])
        limit = {"step_0": 8 << 30, "job_7": 16 << 30}.get(parts[depth - 1])
        files |= {
            f"{group}/memory.max": f"{limit or 'max'}\n",
            f"{group}/memory.current": f"{6 << 30}\n",
            f"{group}/memory.peak": f"{7 << 30}\n",
            f"{group}/memory.stat": STAT,
            f"{group}/memory.events": EVENTS.format(kills.get(parts[depth - 1], 8)),
            f"{group}/cpu.stat": "usage_usec 2500000\nuser_usec 2000000\nsystem_usec 500000\n",
        }
    machine = _machine(tmp_path, {**files, "proc/meminfo": MEMINFO.replace(" 1000 kB", " 67108864 kB")})
    assert machine.group and machine.group.folder.name == "step_0"
    assert (machine.memory_limit, machine.memory(), machine.memory_peak()) == (8 << 30, 5 << 30, 7 << 30)
    assert machine.cpu_seconds() == 2.5
    assert memory_kill_count(tmp_path / "proc", tmp_path / "groups") == 1
    described = describe([Moment(0.0, machine.memory(), {0: 4 << 30})], machine, None)
    assert described.splitlines()[0].endswith("(limit 8.00 GiB, peak with caches 7.00 GiB):")


@pytest.mark.parametrize("limit", ["max\n", "9223372036854771712\n", "damaged", ""])
def test_without_a_limit_the_memory_of_the_machine_counts(tmp_path: Path, limit: str) -> None:
    machine = _machine(tmp_path, {"proc/self/cgroup": "0::/\n", "groups/memory.max": limit})
    assert (machine.memory_limit, machine.memory(), machine.memory_peak()) == (1000 << 10, 600 << 10, None)


def test_what_a_system_does_not_have_is_not_zero(tmp_path: Path) -> None:
    machine = Machine(tmp_path, tmp_path, tmp_path)
    found = (machine.memory(), machine.memory_limit, machine.cpu_seconds(), machine.disk_bytes())
    assert (*found, machine.network_bytes(), machine.memory_of(1)) == (None,) * 6


@pytest.mark.parametrize("lists", [True, False])
def test_processes_that_the_kernel_does_not_list_may_do_anything(lists: bool, tmp_path: Path) -> None:
    folder = tmp_path / "7/task/7"
    folder.mkdir(parents=True)
    (tmp_path / "7/stat").write_text("7 (python) S " + " ".join(["1"] * 40))
    (tmp_path / "7/io").write_text("rchar: 5\nwchar: 6\n")
    if lists:
        (folder / "children").write_text("")
    usage = Machine(tmp_path, tmp_path, tmp_path).usage_of(7)
    assert usage is not None and usage.moved == ({7: 11} if lists else None)


RECEIVES = """
import socket, sys
connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
left = 70_000
while left:
    left -= len(connection.recv(left))
print("received", flush=True)
input()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="another kernel")
def test_the_connections_of_a_process_are_its_own() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(type=socket.SOCK_DGRAM) as other:
        arguments = [sys.executable, "-c", RECEIVES, str(server.getsockname()[1])]
        with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            connection, _ = server.accept()
            with connection:
                connection.sendall(bytes(70_000))
                assert process.stdout and process.stdout.readline() == b"received\n"
                usage = Machine().usage_of(process.pid, read_connections())
                other.connect(("127.0.0.1", 9))
                mine = Machine().usage_of(os.getpid(), read_connections())
            process.communicate(b"\n")
    assert usage and usage.connections and len(usage.connections) == 1, "not those of this process"
    assert sum(usage.connections.values()) >= 70_000
    assert mine and mine.connections is None, "bytes of UDP are not counted"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a network namespace")
def test_the_connections_of_another_network_namespace_are_unknown() -> None:
    arguments = ["unshare", "--net", "sh", "-c", "echo began && exec cat"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"began\n"
        usage = Machine().usage_of(process.pid, read_connections())
        process.communicate(b"")
    assert usage and usage.connections is None


def test_disks_and_networks_count_once(tmp_path: Path) -> None:
    disks = "".join(
        f" 8 0 {name} 1 0 {read} 0 1 0 {written} 0 0 0 0\n"
        for name, read, written in [("sda", 2, 4), ("sda1", 2, 4), ("dm-0", 2, 4), ("nvme0n1", 10, 20)]
    )
    net = "Inter-|\n face |bytes\n    lo: 9 0 0 0 0 0 0 0 9 0\n  eth0:100 0 0 0 0 0 0 0 7 0\n"
    machine = _machine(
        tmp_path,
        {
            "proc/diskstats": disks,
            "proc/self/net/dev": net,
            "block/sda/size": "",
            "block/dm-0/size": "",
            "block/nvme0n1/size": "",
        },
    )
    assert machine.disk_bytes() == (12 * 512, 24 * 512)
    assert machine.network_bytes() == (100, 7)


def test_processors_of_this_machine_are_counted() -> None:
    machine = Machine()
    before = machine.cpu_seconds()
    began = time.process_time()
    while time.process_time() - began < 0.3:
        pass
    after = machine.cpu_seconds()
    assert before is not None
    assert after is not None
    assert after - before > 0.2


@pytest.fixture
def rank_with_child() -> Any:
    """A process of 40 MB that has started one of 60 MB."""
    fill = "import sys, subprocess; b = bytearray(b'x') * ({} << 20); "
    child = fill.format(60) + "print(flush=True); sys.stdin.read()"
    start = f"c = subprocess.Popen([sys.executable, '-c', {child!r}]); c.wait()"
    process = subprocess.Popen(
        [sys.executable, "-c", fill.format(40) + start], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout
    process.stdout.readline()
    yield process
    process.communicate(timeout=240)


def test_a_rank_has_the_memory_of_its_processes(
    rank_with_child: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    RankRecord(pid=rank_with_child.pid, rank=3).write(str(tmp_path), 0)
    sampler = Sampler(EventLog(tmp_path / "events.jsonl", "algo-2"), tmp_path, 1, {}, seconds=0.2)
    sampler.watch(str(tmp_path), _slots(3, 2))
    deadline = time.monotonic() + 60
    while not (found := [sample for sample in _samples(tmp_path) if sample.ranks]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    text = sampler.last_minute()
    sampler.close()
    sample = found[-1]
    assert list(sample.ranks) == [3]
    assert 100 << 20 < sample.ranks[3] < 200 << 20
    assert sample.memory
    assert sample.memory_limit
    assert sample.cpus
    assert sample.disk_free
    assert "rank 3: 0.1" in text


def _slots(*ranks: int) -> list[RankSlot]:
    return [RankSlot(rank, local, len(ranks), len(ranks), 0, 1) for local, rank in enumerate(ranks)]


def _samples(folder: Path) -> list[Sample]:
    events = read_events(folder / "events.jsonl")
    return [Sample.of(event) for event in events if (event["event"], event["source"]) == ("sample", "algo-2")]


def test_a_full_disk_ends_neither_the_sampler_nor_the_job(tmp_path: Path) -> None:
    (tmp_path / "events.jsonl").mkdir()
    sampler = Sampler(EventLog(tmp_path / "events.jsonl", "algo-2"), tmp_path, 1, {}, seconds=0.1)
    time.sleep(0.5)
    assert sampler._thread.is_alive()
    sampler.close()


class _Recorder:
    """Feeds a sampler with readings, without its thread."""

    def __init__(self, folder: Path, hosts: int = 1) -> None:
        self._sampler = Sampler(EventLog(folder / "events.jsonl", "algo-2"), folder, hosts, {})
        self._sampler.close()
        from cloudtrain.runtime.sampling.sampler import _Recorded

        self._recorded = _Recorded(0.0)

    def add(self, now: float, **reading: Any) -> None:
        full = {"memory": 1, "memory_limit": 100, **reading}
        self._sampler._record(self._recorded, full, now, is_due=now < FULL_RATE_SECONDS, is_last=False)


@pytest.mark.parametrize(("hosts", "lines"), [(1, 1440), (1024, 360)])
def test_a_day_of_samples_is_bounded(tmp_path: Path, hosts: int, lines: int) -> None:
    recorder = _Recorder(tmp_path, hosts)
    for index in range(1, 8641):
        recorder.add(index * 10.0, cpu=1.0)
    samples = _samples(tmp_path)
    assert abs(len(samples) - lines) < 30
    assert [sample.seconds for sample in samples[:3]] == [10 * max(1, hosts // 256)] * 3


def test_memory_that_fills_up_is_recorded_immediately(tmp_path: Path) -> None:
    recorder = _Recorder(tmp_path)
    for index, memory in enumerate([70, 79, 85, 85, 95, 85, 95, 99]):
        recorder.add(1000.0 + index, memory=memory)
    assert [sample.memory for sample in _samples(tmp_path)] == [70, 85, 95, 99]


def test_a_fault_of_a_gpu_is_recorded_immediately(tmp_path: Path) -> None:
    recorder = _Recorder(tmp_path)
    recorder.add(1000.0, gpu=["GPU-1"], gpu_xid=[None])
    recorder.add(1001.0, gpu=["GPU-1"], gpu_xid=[79])
    recorder.add(1002.0, gpu=["GPU-1"], gpu_xid=[None])
    assert [sample.gpus[0].xid for sample in _samples(tmp_path)] == [None, 79]


def test_a_minute_has_means_and_largest_values() -> None:
    readings: list[dict[str, Any]] = [
        {
            "cpu": 1.0,
            "memory": 5,
            "disk_read": None,
            "gpu": ["a", "b"],
            "gpu_use": [100, None],
            "gpu_power": [2, 3],
        },
        {
            "cpu": 2.0,
            "memory": 9,
            "disk_read": None,
            "gpu": ["a", "b"],
            "gpu_use": [50, None],
            "gpu_power": [4, 5],
        },
        {
            "cpu": 3.0,
            "memory": 7,
            "disk_read": None,
            "gpu": ["a", "b"],
            "gpu_use": [None, None],
            "gpu_power": [None, 7],
        },
    ]
    assert merge(readings) == {
        "cpu": 2,
        "cpu_max": 3,
        "memory": 9,
        "gpu": ["a", "b"],
        "gpu_use": [75, None],
        "gpu_use_max": [100, None],
        "gpu_power": [3, 5],
    }


def test_values_of_other_gpus_and_ranks_are_not_mixed() -> None:
    merged = merge(
        [
            {"gpu": ["a"], "gpu_use": [10], "ranks": [0, 1], "rank_memory": [50, 60], "rank_data": [0, 1]},
            {"gpu": ["b"], "gpu_use": [90], "ranks": [1], "rank_memory": [20], "rank_data": [0.5]},
        ]
    )
    assert (merged["gpu_use"], merged["rank_memory"], merged["rank_data"]) == ([90], [20], [0.5])


def test_the_last_minute_ends_with_the_rank() -> None:
    both, one = Moment(1, 300, {0: 100, 1: 200}), Moment(2, 100, {0: 100})
    assert until_end_of(1, [both, one, one]) == [both]
    assert until_end_of(0, [both, one]) == [both, one]
    assert until_end_of(2, [both, one]) == [both, one]
    assert until_end_of(None, [both, one]) == [both, one]


def test_the_last_minute_shows_how_the_memory_grew(tmp_path: Path) -> None:
    machine = _machine(tmp_path, {"proc/meminfo": "MemTotal: 8388608 kB\n"})
    moments = [
        Moment(second, (second << 30) // 10, {rank: rank << 30 for rank in range(6)}) for second in range(61)
    ]
    lines = describe(moments, machine, None).splitlines()
    assert lines[0] == "Memory of the host in the last minute (limit 8.00 GiB):"
    assert len(lines) == 12
    assert lines[1].split()[:6] == ["60", "s", "before", "the", "end", "0.00"]
    assert lines[-1] == (
        "   0 s before the end  6.00 GiB  rank 2: 2.00 GiB, rank 3: 3.00 GiB, rank 4: 4.00 GiB, rank 5: 5.00 GiB"
    )
    assert describe([], machine, None) == ""


def test_sampling_takes_little_of_a_processor(tmp_path: Path) -> None:
    """The thread limits itself: a look at 64 ranks, which takes milliseconds, is followed by a long pause."""
    for local in range(64):
        RankRecord(pid=os.getpid(), rank=local).write(str(tmp_path), local)
    sampler = Sampler(EventLog(tmp_path / "events.jsonl", "algo-2"), tmp_path, 1, {}, seconds=0.01)
    sampler.watch(str(tmp_path), _slots(*range(64)))
    deadline = time.monotonic() + 120
    while not sampler._moments and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(3)
    looks = len(sampler._moments)
    sampler.close()
    assert 1 <= looks <= 6, "without its limit the thread looks every 10 ms"
