"""Amounts in Kubernetes' notation."""

from __future__ import annotations

from fractions import Fraction

import pytest

from cloudtrain.platforms.kubernetes.api.refusals import parse_quantity, show_quantity
from cloudtrain.platforms.kubernetes.doctor.pods import requests_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("4", 4), ("500m", Fraction(1, 2)), ("1.5", Fraction(3, 2)), ("32Gi", 32 * 2**30), ("2k", 2000)),
        *(
            ("1e3", 1000),
            ("100M", 10**8),
            (8, 8),
            ("1Ei", 2**60),
            ("", None),
            ("much", None),
            ("1.2.3", None),
            ("9Zi", None),
            (".5", Fraction(1, 2)),
            ("9" * 400, None),
            ("1e999", None),
        ),
    ],
)
def test_amounts_are_numbers(text: object, value: Fraction | None) -> None:
    assert parse_quantity(text) == value


def test_amounts_for_people() -> None:
    assert show_quantity(Fraction(1536 * 2**20), "memory") == "1.5 GiB"
    assert show_quantity(Fraction(3, 2), "cpu") == "1.5"


def test_a_limit_alone_is_a_request_too() -> None:
    containers = [
        {"resources": {"limits": {"nvidia.com/gpu": "8"}, "requests": {"cpu": "2"}}},
        {"resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "1"}}},
        {},
    ]
    assert requests_of({"containers": containers}) == {"nvidia.com/gpu": 8, "cpu": 3}
    assert requests_of({"containers": containers}, "limits") == {"nvidia.com/gpu": 8, "cpu": 4}
