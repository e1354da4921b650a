"""The facts about one job in a report: parameters, durations and metrics, as text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cloudtrain._display.facts import goodput_share, goodput_times, places
from cloudtrain._display.past import cost_of
from cloudtrain._display.steps import span
from cloudtrain._display.view import moment
from cloudtrain._display.waits import waits_text
from cloudtrain.contract import user_hyperparameters
from cloudtrain.observe.metric_series import Point
from cloudtrain.watch.report.gather import HYPERPARAMETERS, Gathered

MOST_DETAILS = 30


def status(job: Gathered) -> str:
    """The state of the job, and the time of the query unless the job has ended."""
    if job.description is None:
        seen = f"; {job.past.status} on {moment(job.past.seen_at)}" if job.past and job.past.seen_at else ""
        return f"unknown, as of {moment(job.at)}{seen}"
    if job.description.status.is_final:
        return str(job.description.status)
    return f"{job.description.status}, as of {moment(job.at)}"


def what_ran(job: Gathered) -> Iterator[tuple[str, str]]:
    """Labels with facts about what ran, where and when."""
    yield "status", status(job)
    yield "platform", job.platform
    if job.submitted_at is not None:
        yield "submitted", moment(job.submitted_at)
    if job.view is None or job.description is None:
        yield from _remembered(job)
        return
    found = job.description
    if found.reason:
        yield "reason", found.reason
    for label, at in (("started", found.started_at), ("ended", found.ended_at)):
        if at is not None:
            yield label, moment(at)
    if job.view.seconds is not None:
        yield "took", span(job.view.seconds)
    if found.attempt:
        yield "attempts", str(found.attempt + 1)
    if waits := waits_text(job.view):
        yield "waits for", waits
    yield from machine(job)
    if found.git_commit:
        yield "commit", found.git_commit
    yield from list(found.details.items())[:MOST_DETAILS]
    if job.view.plan is not None:
        from cloudtrain._display.planned import prediction_text

        yield "planned", prediction_text(job.view.plan)
    yield "cost", cost(job)
    yield from places(job.view)


def _remembered(job: Gathered) -> Iterator[tuple[str, str]]:
    """The facts from the history."""
    past = job.past
    if past is None:
        return
    for label, at in (("started", past.started_at), ("ended", past.ended_at)):
        if at is not None:
            yield label, moment(at)
    if past.duration is not None:
        yield "took", span(past.duration)
    yield from machine(job)
    for label, fact in (("commit", past.git_commit), ("why", past.why)):
        if fact:
            yield label, fact
    yield "cost", cost(job)
    if past.plan_error is not None:
        from cloudtrain._display.planned import cost_off, time_off

        yield "planned", "; ".join(filter(None, (time_off(past.plan_error), cost_off(past.plan_cost_error))))
    for name, metric in past.metrics.items():
        if metric.last is not None:
            yield f"last {name}", f"{metric.last:g}"


def machine(job: Gathered) -> Iterator[tuple[str, str]]:
    """The hosts and the image."""
    body = job.request
    resources = body.get("ResourceConfig") or {}
    count = body.get("host_count") or resources.get("InstanceCount")
    kind = body.get("instance_type") or resources.get("InstanceType")
    if not count and job.past:
        count, kind = job.past.instance_count, job.past.instance_type
    if not count and job.description and job.description.hosts:
        count = len(job.description.hosts)
    if count:
        yield "hosts", f"{count} × {kind}" if kind else str(count)
    image = body.get("image") or (body.get("AlgorithmSpecification") or {}).get("TrainingImage")
    if image:
        yield "image", str(image)


def cost(job: Gathered) -> str:
    """The cost as text."""
    if job.view is not None and job.view.cost is not None:
        return job.view.cost.line()
    past = cost_of(job.past) if job.past is not None else None
    return past.line() if past else "not known"


def parameters(job: Gathered) -> dict[str, str]:
    """The hyperparameters, arguments and environment variables of the script as text, by name."""
    body = job.request
    if not body and job.past:
        script = {"entry point": job.past.script} if job.past.script else {}
        return {**script, **job.past.parameters}
    values: Mapping[str, Any] = next(
        (body[key] for key in HYPERPARAMETERS if isinstance(body.get(key), Mapping)), {}
    )
    found = {name: text_of(value) for name, value in user_hyperparameters(values).items()}
    if values.get("sagemaker_program"):
        found = {"entry point": str(values["sagemaker_program"]), **found}
    arguments = body.get("arguments") or ()
    if arguments:
        found["arguments"] = " ".join(map(text_of, arguments))
    environment = body.get("environment") or body.get("Environment") or {}
    if isinstance(environment, Mapping):
        found |= {f"${name}": text_of(value) for name, value in environment.items()}
    return found


def text_of(value: Any) -> str:
    """A value of a request as text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def goodput(job: Gathered) -> str:
    """The share of the time in steps, and where the rest went; empty if it was not measured."""
    if job.description is None or job.description.goodput is None:
        return ""
    share, times = goodput_share(job.description), goodput_times(job.description.goodput)
    return times if share is None else f"{share:.1%} ({times})"


def last(points: Sequence[Point]) -> list[str]:
    """The last, the smallest and the largest value of a metric, and the number of values."""
    finite = [point.value for point in points if math.isfinite(point.value)]
    ends = [f"{min(finite):g}", f"{max(finite):g}"] if finite else ["", ""]
    broken = f" ({len(points) - len(finite):,} not finite)" if len(finite) < len(points) else ""
    return [f"{points[-1].value:g}", *ends, f"{len(points):,}{broken}"]
