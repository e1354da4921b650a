"""Hosts that a job could run on: what schedulers print, and in which order they are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cloudtrain.plan.offers import HostsOffered, _order, find_offers, is_named
from cloudtrain.platforms import HostOffer
from cloudtrain.platforms.slurm.offers import parse_offers


def test_partitions_as_sinfo_prints_them() -> None:
    text = (
        "main*|up|idle|3|gpu:a100:8(S:0-1),nvme:1\n"
        "main*|up|alloc|2|gpu:a100:8(S:0-1)\n"
        "main*|up|mix|1|gpu:a100:8\n"
        "main*|up|drain|4|gpu:a100:8\n"
        "main*|up|idle*|5|gpu:a100:8\n"  # does not respond
        "cpu|up|idle|9|(null)\n"
        "old|inact|idle|9|gpu:2\n"
        "small|up|idle~|2|gpu:2\n"  # powered down: starts on demand
        "slurm_load_partitions: error\n"
    )
    assert [*parse_offers(text, "lab")] == [
        HostOffer("main", "", "a100", 8, 6, 24, "lab"),
        HostOffer("small", "", "", 2, 2, 4, "lab"),
    ]


@pytest.mark.parametrize(
    ("gpu", "name", "means"),
    [
        ("H100", "h100", True),
        ("H100", "NVIDIA-H100-80GB-HBM3", True),
        ("A10", "a100", False),
        ("A10G", "NVIDIA-A10G", True),
        ("L4", "l40s", False),
        ("V100", "tesla_v100", True),
    ],
)
def test_a_gpu_by_the_names_of_platforms(gpu: str, name: str, means: bool) -> None:
    assert is_named(gpu, name) is means


def test_offers_that_fit_are_first_and_unknown_prices_last() -> None:
    one = HostsOffered("slurm", "main", 2, "", "a100", 8, price=10.0, available=4, free_gpus=16)
    busy = replace(one, free_gpus=8, price=1.0)
    unknown = replace(one, price=None)
    small = replace(one, available=1, price=0.1)
    quota = replace(one, available=None, price=0.1)
    assert sorted([small, quota, busy, unknown, one], key=_order) == [one, unknown, busy, quota, small]
    assert (small.fits, quota.fits, one.fits) == (False, None, True)


def test_the_types_of_the_table_are_offered_without_an_account(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    problems: list[str] = []
    found = find_offers("A100", 16, ["sagemaker"], problems, "us-east-1")
    assert {(offer.kind, offer.hosts) for offer in found} == {("ml.p4d.24xlarge", 2), ("ml.p4de.24xlarge", 2)}
    assert all(offer.available is None and offer.fits is None for offer in found)
    [problem] = problems
    assert problem.startswith("sagemaker: quotas are not known: ")


def test_a_platform_that_lists_no_hosts_is_a_problem_not_a_failure() -> None:
    problems: list[str] = []
    assert find_offers("", 1, ["container"], problems) == []
    assert problems == ["container: the platform container does not list its hosts"]
