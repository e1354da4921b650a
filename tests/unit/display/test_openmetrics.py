"""OpenMetrics text, as the parser of Prometheus reads it."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from job_views import NOW, view
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse
from prometheus_client.parser import text_string_to_metric_families as parse_as_textfile

from cloudtrain._display.view import JobView
from cloudtrain.cost import Cost
from cloudtrain.observe.samples import GpuSample, Sample
from cloudtrain.observe.summary import summarize
from cloudtrain.watch.openmetrics import GAUGES, openmetrics

EVENTS = [
    {"time": NOW - 9, "source": "supervisor", "event": "attempt", "attempt": 1},
    {"time": NOW - 8, "source": "algo-2", "event": "host", "hosts": ["algo-1", "algo-2"], "attempt": 1},
    {"time": NOW - 7, "source": "algo-2", "event": "launch", "ranks": [2, 3]},
    {"time": NOW - 6, "source": "algo-2", "event": "step", "step": 7},
]
GPU = GpuSample("GPU-1", use=50.0, memory=2e9, power=300.0, temperature=70.0)
SAMPLE = Sample(NOW, 10.0, 1.5, memory=1e9, memory_limit=8e9, ranks={2: 5e8}, gpus=(GPU, GpuSample("MIG-2")))


def _read(*views: JobView) -> dict[tuple[str, str], float]:
    """Each value, by its name and those of its labels that not all have."""
    text = openmetrics(views)
    found = {}
    for family in parse(text):
        assert family.type == "gauge" and family.documentation == GAUGES[family.name]
        for sample in family.samples:
            labels = {
                key: value for key, value in sample.labels.items() if key not in ("platform", "attempt")
            }
            assert sample.labels["platform"] == "fake" and sample.labels["attempt"] == "1"
            found[sample.name, " ".join(labels.values())] = sample.value
    assert sum(len(family.samples) for family in parse_as_textfile(text)) == len(found)
    return found


def test_job_host_and_rank() -> None:
    job = replace(
        view(attempt=1, metrics={"loss": 0.5}, step=7),
        summary=summarize(EVENTS), samples={"algo-2": [SAMPLE]}, cost=Cost(1.25, "EUR"),
    )  # fmt: skip
    found = _read(job)
    assert found["cloudtrain_job", "train-1 Running"] == 1
    assert found["cloudtrain_job", "train-1 Failed"] == 0
    assert found["cloudtrain_metric", "train-1 loss"] == 0.5
    assert found["cloudtrain_elapsed_seconds", "train-1"] == 90
    assert found["cloudtrain_cost", "train-1 EUR"] == 1.25
    assert found["cloudtrain_rank_step", "train-1 algo-2 3"] == 7
    assert found["cloudtrain_rank_memory_bytes", "train-1 algo-2 2"] == 5e8
    assert found["cloudtrain_gpu_utilization_ratio", "train-1 algo-2 GPU-1"] == 0.5
    assert ("cloudtrain_gpu_utilization_ratio", "train-1 algo-2 MIG-2") not in found  # not 0
    assert ("cloudtrain_goodput_ratio", "train-1") not in found


@pytest.mark.parametrize(
    "evil", ['"', "\\", 'a"} 1\n# EOF\n', "\x00\x1b]0;x\x07", "\ud800", "ü" * 1000, "{}=,"]
)
def test_any_name_is_one_label(evil: str) -> None:
    found = _read(view(attempt=1, name=evil, metrics={evil: 1.0}))
    assert len([name for name, _ in found if name == "cloudtrain_metric"]) == 1


def test_values_that_are_not_finite() -> None:
    found = _read(view(attempt=1, metrics={"a": math.nan, "b": math.inf, "c": -math.inf}))
    assert math.isnan(found["cloudtrain_metric", "train-1 a"])
    assert (found["cloudtrain_metric", "train-1 b"], found["cloudtrain_metric", "train-1 c"]) == (
        math.inf,
        -math.inf,
    )


def test_several_jobs_share_their_descriptions() -> None:
    found = _read(view(attempt=1, step=1), view(attempt=1, name="train-2", step=2))
    assert (found["cloudtrain_step", "train-1"], found["cloudtrain_step", "train-2"]) == (1, 2)
