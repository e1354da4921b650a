"""The answers of a rank from the records of PyTorch's flight recorder, and the dumps that it keeps."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cloudtrain.observe import flight_recorder
from cloudtrain.observe.flight_recorder import by_group, summary
from cloudtrain.observe.inquiry import InGroup


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """An entry of version 2.10 of the trace."""
    return {
        "op_id": number,
        "collective_seq_id": number,
        "is_p2p": False,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "retired": False,
        "process_group": ["0", "default_pg"],
        "input_dtypes": ["Float"],
        "input_sizes": [[4096, 2]],
        **changes,
    }


class Runs:
    """A pickle that creates a file where it is read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self._path,)


@pytest.fixture
def outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SM_OUTPUT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("RANK", "3")
    return tmp_path / "data" / "flight-recorder"


def record(monkeypatch: pytest.MonkeyPatch, trace: str | bytes, dump: bytes) -> None:
    functions = SimpleNamespace(_dump_nccl_trace=lambda: dump, _dump_nccl_trace_json=lambda: trace)
    monkeypatch.setitem(sys.modules, "torch._C._distributed_c10d", functions)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)


def test_only_collectives_in_flight_are_listed() -> None:
    done = [entry(1, state="completed"), entry(2, retired=True)]
    assert list(summary("nccl", [*done, entry(3, state="started")])) == [
        "nccl: 1 of the last 3 collectives in flight",
        "  nccl:all_reduce of Float[4096, 2], started, number 3 of group 0 default_pg",
    ]


def test_a_long_list_is_cut() -> None:
    lines = list(summary("nccl", [entry(number) for number in range(40)]))
    assert len(lines) == 7
    assert lines[-1] == "  and 35 more"


def test_how_far_a_rank_is_in_each_group() -> None:
    other = {"process_group": ["1", "tensor"]}
    message = entry(9, is_p2p=True, collective_seq_id=7)
    entries = [entry(1, retired=True), entry(2), entry(3), message, entry(4, state="completed", **other)]
    assert by_group("nccl", entries) == {
        "nccl 0 default_pg": InGroup(3, 2, "nccl:all_reduce of Float[4096, 2]"),
        "nccl 1 tensor": InGroup(4),
    }


def test_the_dump_is_kept_for_torchfrtrace_and_never_read(
    outputs: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dump = pickle.dumps(Runs(tmp_path / "ran"))
    record(monkeypatch, json.dumps({"version": "2.10", "entries": [entry(4)]}), dump)
    found = flight_recorder.answer()
    assert found.text.startswith("nccl: 1 of the last 1 collectives in flight\n")
    assert found.groups == {"nccl 0 default_pg": InGroup(4, 4, "nccl:all_reduce of Float[4096, 2]")}
    assert (outputs / "nccl" / "rank_3").read_bytes() == dump
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "trace",
    [
        b"\x80\x02}.",
        "[" * 100_000,
        "[]",
        '{"entries": {}}',
        json.dumps({"entries": [7, None, {}, entry("x"), entry(-1)]}),  # type: ignore[arg-type]
        json.dumps({"entries": [entry(1, input_sizes=7, process_group=None, profiling_name=[])]}),
    ],
    ids=["pickle", "deep", "list", "no-list", "no-entries", "other-types"],
)
def test_a_damaged_record_is_an_answer(
    trace: str | bytes, outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(monkeypatch, trace, b"")
    assert flight_recorder.answer().text.startswith("nccl: ")


def test_a_dump_that_cannot_be_kept_costs_the_dump_only(
    outputs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs.parent.mkdir()
    outputs.write_text("a file of the script")
    record(monkeypatch, json.dumps({"entries": [entry(4)]}), b"dump")
    found = flight_recorder.answer()
    assert found.groups
    assert "nccl: the flight record cannot be read or kept" in found.text


def test_a_script_without_collectives_has_no_record(outputs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(monkeypatch, json.dumps({"entries": []}), b"dump")
    assert flight_recorder.answer() == ("", {})
    monkeypatch.delitem(sys.modules, "torch._C._distributed_c10d")
    assert flight_recorder.answer() == ("", {})
    assert not outputs.exists()
