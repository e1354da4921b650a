"""Samples of hosts: their events, the recent ones in the summary of a job, and hostile ones."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cloudtrain.observe import GpuSample, Sample, Summary, parse_event, summarize
from cloudtrain.observe.samples import MOST_HOSTS, MOST_IN_ALL, MOST_OF_A_HOST


def _event(host: str = "algo-1", time: float = 1.8e9, **fields: Any) -> dict[str, Any]:
    return {"time": time, "source": host, "event": "sample", "seconds": 10.0, **fields}


def test_a_sample_has_its_gpus_and_ranks() -> None:
    event = _event(
        cpu=1.5,
        memory=7,
        ranks=[2, 3],
        rank_memory=[10, 20],
        rank_data=[0.25, None],
        gpu=["GPU-11111111", "MIG-22222222"],
        gpu_use=[93.5, None],
        gpu_throttling=["thermal", None],
    )
    sample = Sample.of(parse_event(json.dumps(event)))
    assert (sample.cpu, sample.memory, sample.memory_limit) == (1.5, 7, None)
    assert (sample.ranks, sample.data) == ({2: 10, 3: 20}, {2: 0.25})
    assert sample.gpus == (
        GpuSample("GPU-11111111", use=93.5, throttling="thermal"),
        GpuSample("MIG-22222222"),
    )
    assert Sample.from_dict(json.loads(json.dumps(sample.to_dict()))) == sample


def test_lists_of_different_lengths_have_no_wrong_values() -> None:
    sample = Sample.of(
        parse_event(json.dumps(_event(gpu=["GPU-1", "GPU-2"], gpu_use=[5], gpu_power=[1, 2, 3])))
    )
    assert [(gpu.use, gpu.power) for gpu in sample.gpus] == [(5, 1), (None, 2)]


@pytest.mark.parametrize(
    "fields",
    [
        {"cpu": "1"},
        {"memory": -1},
        {"gpu_use": 5},
        {"gpu_use": ["5"]},
        {"gpu_use": [float("nan")]},
        {"gpu": [5]},
        {"gpu_throttling": [5]},
        {"ranks": {"0": 1}},
        {"ranks": [None]},
        {"ranks": [0.5]},
        {"gpu": ["x"] * 65},
        {"gpu": ["x" * 101]},
        {"gpu_throttling": ["x" * 101]},
        {"rank_memory": [1] * 1025},
        {"rank_data": ["1"]},
        {"seconds": None},
        {"time": None},
    ],
    ids=str,
)
def test_an_event_with_fields_of_other_types_is_none(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        parse_event(json.dumps({**_event(), **fields}))


def test_the_summary_has_recent_samples() -> None:
    events = [_event(host, time, cpu=time) for time in range(100) for host in ("algo-1", "algo-2")]
    summary = summarize(events)
    assert [sample.cpu for sample in summary.recent_samples()["algo-2"]] == [
        *range(100 - MOST_OF_A_HOST, 100)
    ]
    assert summary.last_samples()["algo-1"].time == 99
    assert Summary.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary


def test_the_next_attempt_has_its_own_samples() -> None:
    summary = summarize(
        [_event("algo-1"), {"event": "attempt", "time": 1.8e9, "attempt": 1}, _event("algo-7")]
    )
    assert list(summary.last_samples()) == ["algo-7"]


def test_samples_of_many_hosts_are_bounded() -> None:
    summary = Summary()
    for time in range(20):
        for host in range(1024):
            summary.add(_event(f"algo-{host}", time))
    found = summary.recent_samples()
    assert sum(map(len, found.values())) == MOST_IN_ALL
    assert all(samples[-1].time == 19 for samples in found.values())
    for host in range(MOST_HOSTS + 10):
        summary.add(_event(f"other-{host}"))
    assert len(summary.samples) == MOST_HOSTS
