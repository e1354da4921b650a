"""average_metrics on one rank. Several ranks are covered by the integration tests."""

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


def test_numbers_and_tensors_keep_their_order() -> None:
    means = hvd.average_metrics({"loss": torch.tensor([0.5], requires_grad=True), "accuracy": 1}, weight=4)
    assert list(means.items()) == [("loss", 0.5), ("accuracy", 1.0)]
    assert hvd.average_metrics({}) == {}


def test_the_mean_without_samples_is_nan() -> None:
    assert math.isnan(hvd.average_metrics({"loss": 3.0}, weight=0)["loss"])


@pytest.mark.parametrize("weight", [-1, float("nan")])
def test_an_invalid_weight_is_refused(weight: float) -> None:
    with pytest.raises(hvd.InvalidArgument, match="weight is"):
        hvd.average_metrics({"loss": 1.0}, weight)
