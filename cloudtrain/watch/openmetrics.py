"""The state of jobs as OpenMetrics text for Prometheus: the last values, labelled by job, attempt, host and rank.

See https://prometheus.io/docs/specs/om/open_metrics_spec. All metrics are gauges without a timestamp, so that the
textfile collector of node_exporter can read the text, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cloudtrain._display.view import JobView
from cloudtrain.contract import JobStatus

GAUGES = {
    "cloudtrain_job": "1 for the current status of the job, 0 for the others.",
    "cloudtrain_attempt": "The number of the current attempt; the first one is 0.",
    "cloudtrain_elapsed_seconds": "Seconds since the start of the job, until its end.",
    "cloudtrain_cost": "The cost of the job so far, all attempts together.",
    "cloudtrain_goodput_ratio": "The share of the job's time in training steps that count.",
    "cloudtrain_step": "The last training step of the job.",
    "cloudtrain_metric": "The last value of a metric that the script reports.",
    "cloudtrain_rank_step": "The last training step that the rank's host has reported.",
    "cloudtrain_rank_data_wait_ratio": "Share of its time that the rank waits for data.",
    "cloudtrain_rank_memory_bytes": "Memory of the rank and of the processes that it started.",
    "cloudtrain_host_cpu_cores": "Processors in use.",
    "cloudtrain_host_memory_bytes": "Memory in use that cannot be freed.",
    "cloudtrain_host_memory_limit_bytes": "The limit of this memory.",
    "cloudtrain_gpu_utilization_ratio": "The share of the time in which the GPU ran a kernel.",
    "cloudtrain_gpu_memory_bytes": "Memory of the GPU in use.",
    "cloudtrain_gpu_power_watts": "Power that the GPU draws.",
    "cloudtrain_gpu_temperature_celsius": "Temperature of the GPU.",
}
"""The name of each metric, and its description."""

Value = tuple[str, Mapping[str, object], float | None]
"""The name of a metric, its labels, and its value, which is None if it is not available."""


def openmetrics(views: Iterable[JobView]) -> str:
    """The text for these jobs. Values that are not available are left out."""
    found: dict[str, list[str]] = {name: [] for name in GAUGES}
    for view in views:
        description = view.description
        common = {
            "job": description.name,
            "platform": description.platform,
            "attempt": description.attempt,
        }
        for name, labels, value in (*_of_job(view), *_of_ranks(view), *_of_hosts(view)):
            if value is not None:
                found[name].append(_sample(name, {**common, **labels}, value))
    lines = []
    for name, samples in found.items():
        if samples:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {GAUGES[name]}", *samples]
    return "\n".join([*lines, "# EOF\n"])


def _of_job(view: JobView) -> Iterator[Value]:
    description = view.description
    for status in JobStatus:
        yield "cloudtrain_job", {"status": status}, status == description.status
    yield "cloudtrain_attempt", {}, description.attempt
    yield "cloudtrain_elapsed_seconds", {}, view.seconds
    if view.cost:
        yield "cloudtrain_cost", {"currency": view.cost.currency}, view.cost.amount
    goodput = description.goodput.goodput if description.goodput else None
    yield "cloudtrain_goodput_ratio", {}, goodput
    yield "cloudtrain_step", {}, description.step
    for name, value in description.metrics.items():
        yield "cloudtrain_metric", {"name": name}, value


def _of_ranks(view: JobView) -> Iterator[Value]:
    for rank in view.ranks:
        which = {"host": rank.host, "rank": rank.number}
        yield "cloudtrain_rank_step", which, rank.step
        yield "cloudtrain_rank_data_wait_ratio", which, rank.data_wait


def _of_hosts(view: JobView) -> Iterator[Value]:
    for host, samples in view.samples.items():
        sample, where = samples[-1], {"host": host}
        yield "cloudtrain_host_cpu_cores", where, sample.cpu
        yield "cloudtrain_host_memory_bytes", where, sample.memory
        yield "cloudtrain_host_memory_limit_bytes", where, sample.memory_limit
        for rank, memory in sample.ranks.items():
            yield "cloudtrain_rank_memory_bytes", {**where, "rank": rank}, memory
        for gpu in sample.gpus:
            which = {**where, "gpu": gpu.id}
            yield "cloudtrain_gpu_utilization_ratio", which, None if gpu.use is None else gpu.use / 100
            yield "cloudtrain_gpu_memory_bytes", which, gpu.memory
            yield "cloudtrain_gpu_power_watts", which, gpu.power
            yield "cloudtrain_gpu_temperature_celsius", which, gpu.temperature


def _sample(name: str, labels: Mapping[str, object], value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
    number = float(value)  # Prometheus reads any spelling of nan and inf, OpenMetrics only one
    spelled = {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(str(number), repr(number))
    return f"{name}{{{shown}}} {spelled}"


def _escaped(text: str) -> str:
    text = text.encode("utf-8", "replace").decode()  # a lone surrogate is not UTF-8
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
