"""The mean of metrics, on one rank. Several are a case of the integration tests."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

import cloudtrain.distributed.torch as hvd


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    hvd.init()
    yield
    hvd.shutdown()


def test_numbers_and_tensors_in_their_order() -> None:
    means = hvd.average_metrics({"loss": torch.tensor([0.5], requires_grad=True), "accuracy": 1}, weight=4)
    assert list(means.items()) == [("loss", 0.5), ("accuracy", 1.0)]
    assert hvd.average_metrics({}) == {}


def test_nothing_measured_is_not_a_number() -> None:
    assert math.isnan(hvd.average_metrics({"loss": 3.0}, weight=0)["loss"])


@pytest.mark.parametrize("weight", [-1, float("nan")])
def test_a_weight_is_a_number_of_samples(weight: float) -> None:
    with pytest.raises(hvd.InvalidArgument, match="weight is"):
        hvd.average_metrics({"loss": 1.0}, weight)
