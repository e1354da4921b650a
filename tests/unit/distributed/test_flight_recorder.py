"""The summary of PyTorch's flight recorder in the report of a hang."""

from __future__ import annotations

from typing import Any

from cloudtrain.distributed.torch._flight_recorder import _summary


def entry(number: int, **changes: Any) -> dict[str, Any]:
    """An entry of version 2.10 of the trace."""
    return {
        "op_id": number,
        "profiling_name": "nccl:all_reduce",
        "state": "scheduled",
        "retired": False,
        "process_group": ["0", "default_pg"],
        "input_dtypes": ["Float"],
        "input_sizes": [[4096, 2]],
        **changes,
    }


def test_only_collectives_in_flight_are_listed() -> None:
    done = [entry(1, state="completed"), entry(2, retired=True)]
    assert list(_summary("nccl", {"entries": [*done, entry(3, state="started")]})) == [
        "nccl: 1 of the last 3 collectives in flight",
        "  nccl:all_reduce of Float[4096, 2], started, number 3 of group 0 default_pg",
    ]


def test_a_long_list_is_cut() -> None:
    lines = list(_summary("nccl", {"entries": [entry(number) for number in range(40)]}))
    assert len(lines) == 7
    assert lines[-1] == "  and 35 more"
