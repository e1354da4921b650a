"""Samples of GPUs, with a library in place of NVIDIA's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from cloudtrain.observe import EventLog, Sample, read_events
from cloudtrain.runtime.sampling.background import Background
from cloudtrain.runtime.sampling.nvml import Nvml
from cloudtrain.runtime.sampling.sampler import Sampler
from tests.nvml import ORDERS, compile_stand_in

ONE, TWO = "GPU-11111111", "GPU-22222222"
PARTS = ["MIG-33333333-aaaa-bbbb-cccc-000000000000", "MIG-44444444-aaaa-bbbb-cccc-000000000000"]


@pytest.fixture
def orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the library's orders."""
    path = tmp_path / "orders"
    path.touch()
    monkeypatch.setenv(ORDERS, str(path))
    return path


@pytest.fixture
def library(tmp_path: Path, orders: Path) -> str:
    return str(compile_stand_in(tmp_path))


def test_the_values_have_the_units_of_the_reference(library: str) -> None:
    reading = Nvml({}, library).read()
    assert reading.ids == [ONE, TWO]
    assert reading.columns == {
        "use": [90, 91],
        "memory": [70 << 30] * 2,
        "memory_total": [80 << 30] * 2,
        "power": [650.5] * 2,
        "temperature": [71, 71],
        "throttling": ["power,thermal", ""],
        "ecc": [0, None],
        "xid": [None, None],
    }


def test_a_divided_gpu_is_not_idle_but_unknown(library: str, orders: Path) -> None:
    orders.write_text("mig")
    reading = Nvml({}, library).read()
    assert reading.ids == [ONE, *PARTS]
    assert reading.columns["use"] == [90, None, None]
    assert reading.columns["temperature"] == [71, None, None]
    assert reading.columns["throttling"] == ["power,thermal", None, None]
    assert reading.columns["memory"] == [70 << 30, 5 << 30, 5 << 30]


@pytest.mark.parametrize(
    ("visible", "ids"),
    [
        ("1", [TWO]),
        ("1,0", [ONE, TWO]),
        ("GPU-2222", [TWO]),
        ("GPU-11111111-aaaa-bbbb-cccc-000000000000", [ONE]),
        (PARTS[1], [PARTS[1]]),
        ("", []),
        ("-1", []),
    ],
)
def test_only_the_gpus_of_the_job_are_sampled(
    library: str, orders: Path, visible: str, ids: list[str]
) -> None:
    orders.write_text("mig" if visible in PARTS else "")
    assert Nvml({"CUDA_VISIBLE_DEVICES": visible}, library).read().ids == ids


def test_a_lost_gpu_has_no_values(library: str, orders: Path) -> None:
    nvml = Nvml({}, library)
    orders.write_text("lost")
    reading = nvml.read()
    assert (reading.columns["use"], reading.columns["memory"]) == ([90, None], [70 << 30, None])
    assert reading.lost == [TWO]


def test_a_fault_is_reported_once(library: str, orders: Path) -> None:
    nvml = Nvml({}, library)
    orders.write_text("xid")
    assert [nvml.read().columns["xid"] for _ in range(2)] == [[79, None], [None, None]]


def _samples(folder: Path) -> list[Sample]:
    return [Sample.of(event) for event in read_events(folder / "events.jsonl") if event["event"] == "sample"]


@pytest.fixture
def sampler(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """One that samples five times a second."""
    monkeypatch.setattr("cloudtrain.runtime.sampling.nvml.Nvml.__init__.__defaults__", (library,))
    return Sampler(EventLog(tmp_path / "events.jsonl", "algo-1"), tmp_path, 1, {}, seconds=0.2)


def _wait_for(condition: object) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_driver_that_hangs_delays_nothing(sampler: Sampler, orders: Path, tmp_path: Path) -> None:
    _wait_for(lambda: any(sample.gpus for sample in _samples(tmp_path)))
    orders.write_text("hang")
    _wait_for(lambda: _samples(tmp_path)[-1].gpus[0].stale)
    began = time.monotonic()
    assert "GPU-11111111: 70.00 GiB of 80.00 GiB" in sampler.last_minute()
    sampler.close()
    assert time.monotonic() - began < 45  # the driver hangs for a minute
    last = _samples(tmp_path)[-1]
    assert [(gpu.use, gpu.xid) for gpu in last.gpus] == [(90, None), (91, None)]
    assert last.memory
    assert all(gpu.stale and gpu.stale > 0 for gpu in last.gpus)


def test_a_fault_just_before_the_end_of_a_rank_is_found(
    sampler: Sampler, orders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders.write_text("slow")  # the thread that reads it pauses for half a minute
    _wait_for(lambda: any(sample.gpus for sample in _samples(tmp_path)))
    orders.write_text("xid=31")
    assert sampler.gpu_faults() == [(ONE, 31)]
    _wait_for(lambda: any(gpu.xid == 31 for sample in _samples(tmp_path) for gpu in sample.gpus))
    orders.write_text("hang")
    monkeypatch.setattr("cloudtrain.runtime.sampling.sampler.FAULTS_SECONDS", 1.0)
    began = time.monotonic()
    assert [sampler.gpu_faults() for _ in range(50)][-1] == [(ONE, 31)]
    assert time.monotonic() - began < 40
    sampler.close()


@pytest.mark.parametrize(
    ("xid", "warnings"),
    [
        (31, []),  # the mistake of a script
        (
            94,
            [
                f"the driver has reported Xid 94 of {ONE} on algo-1: an uncorrectable error of its memory, in one "
                "process only. Restarting the job is enough for now: reset the GPU when the node is idle."
            ],
        ),
    ],
)
def test_a_fault_of_the_hardware_is_a_warning(
    sampler: Sampler, orders: Path, tmp_path: Path, xid: int, warnings: list[str]
) -> None:
    orders.write_text(f"xid={xid}")
    _wait_for(lambda: any(gpu.xid == xid for sample in _samples(tmp_path) for gpu in sample.gpus))
    sampler.close()
    events = read_events(tmp_path / "events.jsonl")
    assert [event["message"] for event in events if event["event"] == "warning"] == warnings


def test_a_lost_gpu_is_a_warning(sampler: Sampler, orders: Path, tmp_path: Path) -> None:
    orders.write_text("lost")
    _wait_for(lambda: len(_samples(tmp_path)) > 3)
    sampler.close()
    events = read_events(tmp_path / "events.jsonl")
    assert [event["message"] for event in events if event["event"] == "warning"] == [
        f"the driver has lost {TWO} on algo-1"
    ]


def test_what_takes_long_is_read_less_often() -> None:
    reads = []

    def read() -> int:
        began = time.thread_time()
        while time.thread_time() - began < 0.02:
            pass
        reads.append(1)
        return len(reads)

    background: Background[int] = Background("slow", lambda: read, 0.05)
    began, last = time.monotonic(), 0
    while time.monotonic() - began < 2 or not last:
        found = background.get()
        last = found[0] if found else last
    assert 1 <= last <= 6  # 0.02 s of each 0.4 s
