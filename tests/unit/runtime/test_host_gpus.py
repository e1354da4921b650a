"""Hosts with different numbers of GPUs are refused by name, before their ranks start."""

from __future__ import annotations

import pytest

from cloudtrain.contract import FailureClass
from cloudtrain.contract.host import gpus_of_host
from cloudtrain.runtime.launchers.gpu_environment import differing_gpus


@pytest.mark.parametrize(
    "found",
    [
        {},
        {"algo-1": (8, 8), "algo-2": (8, 8)},
        {"algo-1": (0, 4), "algo-2": (0, 4)},
        {"algo-1": (8, 2), "algo-2": (4, 2)},  # every rank has a GPU
        {"algo-1": (1, 4), "algo-2": (2, 4)},  # no rank has one for itself
    ],
)
def test_these_ranks_can_train_together(found: dict[str, tuple[int, int]]) -> None:
    assert differing_gpus(found) is None


@pytest.mark.parametrize(
    ("found", "message", "hint"),
    [
        (
            {"algo-1": (8, 8), "algo-2": (4, 4), "algo-3": (8, 8)},
            "8 on algo-1, algo-3; 4 on algo-2",
            "processes_per_host to 4 or less.",
        ),
        ({"algo-1": (4, 4), "algo-2": (0, 1)}, "4 on algo-1; 0 on algo-2", "of the distribution."),
        (
            {"algo-1": (4, 4), "algo-2": (3, 4)},
            "4 on algo-1; 3 on algo-2",
            "processes_per_host to 3 or less.",
        ),
        (
            {f"algo-{number}": (int(number != 7), 1) for number in range(1, 9)},
            "1 on algo-1, algo-2, algo-3, algo-4, algo-5 and 2 more; 0 on algo-7",
            "instance_type",
        ),
    ],
)
def test_different_gpus_are_named(found: dict[str, tuple[int, int]], message: str, hint: str) -> None:
    report = differing_gpus(found)
    assert report
    assert report.message == f"the hosts have different numbers of GPUs: {message}"
    assert hint in report.hint
    assert (report.failure_class, report.phase, report.rank) == (FailureClass.PLATFORM, "launch", None)


@pytest.mark.parametrize(
    ("visible", "shares"),
    [
        ("0,1,2,3", ["0,1", "2,3"]),
        ("3,5,7", ["3", "5"]),
        ("0", ["0", "0"]),
        ("MIG-a,MIG-b", ["MIG-a", "MIG-b"]),
        ("", [None, None]),
    ],
)
def test_hosts_on_one_machine_share_its_gpus(visible: str, shares: list[str | None]) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": visible}
    assert [gpus_of_host(number, 2, environ).get("CUDA_VISIBLE_DEVICES") for number in (0, 1)] == shares
    assert gpus_of_host(0, 1, environ) == {}
