"""Timelines of real ranks: their files, clocks and merged results."""

from __future__ import annotations

import csv
import itertools
import json
import signal
from pathlib import Path

import pytest
from recorded_ranks import check_nesting, lanes, mpirun_two, run_two

from cloudtrain.observe.timeline import Trace, align, find_steps, merge, read_trace

GRADIENTS = [
    f"allreduce.gradients {n}.{kind} ... {n}.{kind}" for n in (2, 1, 0) for kind in ("bias", "weight")
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the files of both ranks of ``record.py``."""
    folder = tmp_path_factory.mktemp("recorded")
    ended = run_two("record.py", str(folder))
    assert [rank.returncode for rank in ended] == [0, -signal.SIGKILL], [rank.stderr for rank in ended]
    (folder / "printed.json").write_text(json.dumps([json.loads(rank.stdout)["tuned"] for rank in ended]))
    return folder


@pytest.fixture
def traces(folder: Path) -> list[Trace]:
    return align([read_trace(folder / name) for name in ("whole.json", "whole.rank1.json")])


def test_a_file_is_one_array_and_its_lanes_are_nested(folder: Path) -> None:
    for rank, name in enumerate(("whole.json", "whole.rank1.json")):
        events = json.loads((folder / name).read_text())
        assert {event["pid"] for event in events} == {rank}
        assert any(event["name"] == "CYCLE_START" for event in events)
        check_nesting(read_trace(folder / name))


def test_every_phase_of_an_operation_is_recorded(traces: list[Trace]) -> None:
    for trace in traces:
        found = lanes(trace)
        assert [span["name"] for span in found["allreduce.a"]] == [
            "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", "SHARED_MEMORY_ALLREDUCE"
        ]  # fmt: skip
        assert found["allreduce.a"][1]["args"]["shape"] == [9000]
        assert [span["name"] for span in found["allreduce.small"]] == ["NEGOTIATE_ALLREDUCE", "ALLREDUCE"]
        assert found["broadcast.b"][-1]["name"] == "GLOO_BROADCAST"
        assert "NEGOTIATE_ALLREDUCE" not in {span["name"] for span in found["allreduce.promised"]}
        unnamed = [name for name in found if name.startswith("allreduce.noname")]
        assert sum(span["name"] == "ALLREDUCE" for name in unnamed for span in found[name]) == 3
        assert {span["name"] for span in found["MainThread"]} == {"STEP", "WAIT"}


def test_without_fusion_every_gradient_is_sent_separately(traces: list[Trace]) -> None:
    for trace in traces:
        found = lanes(trace)
        assert {name for name in found if name.startswith("allreduce.gradients")} == set(GRADIENTS)
        for name in GRADIENTS:
            copies = [span for span in found[name] if span["name"] == "MEMCPY_IN_FUSION_BUFFER"]
            assert len(copies) == 6


def test_the_ranks_are_on_one_clock(folder: Path, traces: list[Trace]) -> None:
    raw = read_trace(folder / "whole.rank1.json")
    assert all(abs(offset.offset_ns + 5e9) < 1e9 for offset in raw.offsets)
    uncertain = sum(max(offset.round_trip_ns for offset in trace.offsets) for trace in traces) / 1000
    zero = min(trace.start_ns for trace in traces)
    first, second = (
        {
            name: [span for span in spans if span["name"].startswith("SHARED_MEMORY")]
            for name, spans in lanes(trace).items()
        }
        for trace in traces
    )
    compared = 0
    for name in GRADIENTS:
        for one, other in zip(first[name], second[name], strict=True):
            began, ended = (
                [(trace.start_ns - zero) / 1000 + span["ts"] + extra for trace, span, extra in each]
                for each in (
                    [(traces[0], one, 0), (traces[1], other, 0)],
                    [(traces[0], one, one["dur"]), (traces[1], other, other["dur"])],
                )
            )
            # no rank can end before the other has begun
            assert min(ended) >= max(began) - uncertain
            compared += 1
    assert compared == 36


def test_steps_follow_each_other_and_rank_1_is_the_slowest(traces: list[Trace]) -> None:
    steps = find_steps(traces)
    assert [step.number for step in steps] == [1, 2, 3, 4, 5]
    for step in steps:
        assert [own.rank for own in step.ranks] == [0, 1]
        assert step.slowest.rank == 1  # it sleeps 50 ms
        assert step.slowest.compute >= 0.05
        assert 0 < step.behind <= step.slowest.compute
        for own in step.ranks:
            assert 0 < own.communication <= own.total
            assert 0 < own.exposed < own.total
        assert step.ranks[0].exposed > 0.02
    for rank in (0, 1):
        for before, after in itertools.pairwise(step.ranks[rank] for step in steps):
            assert after.began == pytest.approx(before.began + before.total, abs=1e-5)


def test_a_killed_rank_leaves_a_file_that_merges(folder: Path) -> None:
    text = (folder / "killed.rank1.json").read_text()
    with pytest.raises(ValueError, match=r"Expecting|Unterminated|Invalid"):
        json.loads(text)
    traces = align([read_trace(folder / name) for name in ("killed.json", "killed.rank1.json")])
    assert [len(step.ranks) for step in find_steps(traces)] == [2, 2, 2]
    [negotiated] = lanes(traces[0])["allreduce.gone"]
    assert negotiated["name"] == "NEGOTIATE_ALLREDUCE"
    assert negotiated["args"]["failed"]
    assert {event["pid"] for event in merge(traces)["traceEvents"]} == {0, 1}


def test_a_profile_of_torch_merges(folder: Path, traces: list[Trace]) -> None:
    profile = read_trace(folder / "profile.json")
    merged = merge(align([*(read_trace(trace.path) for trace in traces), profile]))["traceEvents"]
    of_profile = {event["pid"] for event in merged} - {0, 1}
    assert of_profile
    backward = [event for event in merged if event["name"] == "aten::addmm" and event["pid"] in of_profile]
    [(began, ended)] = [
        (min(span["ts"] for span in spans), max(span["ts"] + span["dur"] for span in spans))
        for spans in [[event for event in merged if event["name"] == "STEP" and event["pid"] == 0]]
    ]
    inside = [event for event in backward if began <= event["ts"] <= ended]
    assert len(inside) == 15, "three layers, five whole steps"
    assert json.dumps(merged)


def test_autotune_keeps_the_fastest_size_on_all_ranks(folder: Path) -> None:
    first, second = json.loads((folder / "printed.json").read_text())
    assert first == second
    assert len(set(first)) == 4
    *rows, _ = csv.reader((folder / "autotune.csv").read_text().splitlines()[1:])
    fastest = min(rows, key=lambda row: float(row[1]))
    assert int(fastest[0]) == first[-1] == first[-4]


def test_mpi_is_recorded(tmp_path: Path) -> None:
    mpirun_two("record_mpi.py", HOROVOD_TIMELINE=str(tmp_path / "mpi" / "timeline.json"))
    files = sorted((tmp_path / "mpi").iterdir())
    assert [path.name for path in files] == ["timeline.json", "timeline.rank1.json"]
    for path in files:
        trace = read_trace(path)
        check_nesting(trace)
        assert [span["name"] for span in lanes(trace)["allreduce.large"]] == [
            "NEGOTIATE_ALLREDUCE", "ALLREDUCE", "QUEUE", "MPI_ALLREDUCE"
        ]  # fmt: skip
