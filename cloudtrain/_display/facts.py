"""The facts about a job, as pairs of a label and a text, in the order of their importance, and as plain text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cloudtrain._display.sparkline import sparkline
from cloudtrain._display.steps import span, step_facts
from cloudtrain._display.view import JobView
from cloudtrain._display.waits import waits_text
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.contract.text import by_number, escape_line, escape_text
from cloudtrain.observe import Goodput, Sample
from cloudtrain.platforms import HostState, JobDescription

BAR_WIDTH = 20
LEAST_WALL = 60.0
"""The duration in seconds from which the goodput of a job is shown."""
MOST_HOSTS = 16
"""The hosts that get a line each."""


def facts(view: JobView) -> Iterator[tuple[str, str]]:
    """The facts about a job, one line each. They contain text from the job: escape them."""
    description = view.description
    yield "status", f"{description.status}" + (f": {description.reason}" if description.reason else "")
    if view.hanging:
        yield "hangs", view.hangs
    if description.phase:
        yield "phase", description.phase
    steps = step_facts(description)
    if steps:
        yield "progress", steps
    for name, value in description.metrics.items():
        yield name, f"{value:g}  {sparkline([point.value for point in view.series.get(name, ())])}".rstrip()
    if view.seconds is not None:
        phases = ", ".join(
            f"{name} {span(took)}" for name, took in description.phases.items() if took >= 0.05
        )
        yield "took", span(view.seconds) + (f" ({phases})" if phases else "")
    if view.plan is not None:
        from cloudtrain._display.planned import prediction_text

        yield "planned", prediction_text(view.plan)
    if description.goodput:
        share = goodput_share(description)
        filled = round((share or 0) * BAR_WIDTH)
        bar = "" if share is None else f"{share:.1%} {'█' * filled}{'░' * (BAR_WIDTH - filled)} "
        times = goodput_times(description.goodput)
        yield ("goodput", f"{bar}({times})") if bar else ("time", times)
    if waits := waits_text(view):
        yield "waits for", waits
    if description.attempt:
        yield "retries", str(description.attempt)
    yield from description.details.items()
    if description.status != JobStatus.COMPLETED:
        yield from _hosts(description.hosts)
        yield from _samples(description.samples)
    if view.cost is not None:
        yield "cost", view.cost.line()
    for label, fact in (("commit", description.git_commit), *places(view)):
        if fact:
            yield label, fact
    yield "logs", f"cloudtrain logs {description.name}"


def places(view: JobView) -> Iterator[tuple[str, str]]:
    """Where the results of the job are, and the job itself."""
    description = view.description
    for label, place in (
        ("model", description.model_data),
        ("output", description.output_data),
        ("checkpoints", description.checkpoint_uri),
        ("console" if "://" in description.place else "folder", description.place),
    ):
        if place:
            yield label, place


def _hosts(hosts: Sequence[HostState]) -> Iterator[tuple[str, str]]:
    """The hosts with a message from the platform. Of many, those whose state is not the most common one come first."""
    described = [host for host in hosts if host.message]
    if len(described) > MOST_HOSTS:
        common = Counter(host.state for host in described).most_common(1)[0][0]
        described.sort(key=lambda host: host.state == common)
    for host in described[:MOST_HOSTS]:
        yield host.name, f"{host.state} {host.message}"
    if len(described) > MOST_HOSTS:
        yield "", f"and {len(described) - MOST_HOSTS} more hosts: see --json"


def _samples(samples: Mapping[str, Sample]) -> Iterator[tuple[str, str]]:
    """The last sample of each host; of many hosts, only of the one with the least free memory."""
    if len(samples) > MOST_HOSTS:
        samples = dict([max(samples.items(), key=lambda item: _memory_share(item[1]))])
    for host, sample in sorted(samples.items(), key=lambda item: by_number(item[0])):
        yield f"{host} used", ", ".join(_uses(sample))


def _memory_share(sample: Sample) -> float:
    return sample.memory / sample.memory_limit if sample.memory and sample.memory_limit else 0.0


def _uses(sample: Sample) -> Iterator[str]:
    """``GPUs 93 90 n/a %, GPU memory up to 70.0 of 80 GiB, 3.2 of 8 CPUs, memory 12.0 of 64 GiB``."""
    if sample.gpus:
        shown = " ".join("n/a" if gpu.use is None else f"{gpu.use:.0f}" for gpu in sample.gpus)
        age = max((gpu.stale or 0.0 for gpu in sample.gpus), default=0.0)
        yield f"GPUs {shown} %" + (f" ({age:.0f} s ago: the driver does not answer)" if age else "")
        full = max(sample.gpus, key=lambda gpu: gpu.memory or 0)
        if full.memory is not None and full.memory_total:
            yield f"GPU memory up to {_gib(full.memory)} of {_gib(full.memory_total)} GiB"
        slowed = {gpu.throttling for gpu in sample.gpus if gpu.throttling}
        if slowed:
            yield f"GPU clocks limited: {', '.join(sorted(slowed))}"
        errors = sum(gpu.ecc or 0 for gpu in sample.gpus)
        if errors:
            yield f"{errors:.0f} uncorrected errors of GPU memory"
    if sample.cpu is not None and sample.cpus:
        yield f"{sample.cpu:.1f} of {sample.cpus} CPUs"
    if sample.memory is not None and sample.memory_limit:
        yield f"memory {_gib(sample.memory)} of {_gib(sample.memory_limit)} GiB"


def _gib(size: float) -> str:
    return f"{size / (1 << 30):.1f}"


def goodput_share(description: JobDescription) -> float | None:
    """The goodput, if it is meaningful: None for a short job, which is mostly startup, and for a script that failed
    without a step."""
    found = description.goodput
    if found is None or found.wall < LEAST_WALL:
        return None
    is_lost = found.measured_by == "script" and description.status in (
        JobStatus.FAILED,
        JobStatus.INTERRUPTED,
    )
    return None if is_lost else found.goodput


def goodput_times(found: Goodput) -> str:
    """The productive time of the job, and the lost time by cause, the greatest loss first."""
    lost = sorted(found.lost.items(), key=lambda item: -item[1])
    shown = [f"{cause} {span(seconds)}" for cause, seconds in lost if seconds >= 0.05]
    what = "steps" if found.measured_by == "steps" else "script"
    return ", ".join([f"{what} {span(found.productive)}", *shown])


def text(view: JobView, notes: Sequence[tuple[str, str]] = ()) -> str:
    """The facts about a job, as ``cloudtrain describe`` prints them, without colours."""
    description = view.description
    return "\n".join(
        [
            escape_line(f"Job {description.name} on {description.platform}"),
            *(f"{escape_line(label):<13} {escape_line(value)}" for label, value in facts(view)),
            *(escape_line(f"warning: {warning}") for warning in description.warnings),
            *(line for line, _ in failure_lines(description.failure)),
            *(escape_line(" ".join(note)) for note in notes),
        ]
    )


def failure_lines(failure: FailureReport | None) -> Iterator[tuple[str, str]]:
    """The lines that explain why a job failed, each with the name of its style in rich. They are escaped already."""
    if failure is None:
        return
    yield "", ""
    yield escape_line(f"{failure.summary()}  [{failure.failure_class}]"), "bold red"
    if failure.hint:
        yield escape_text(failure.hint), "yellow"
    if failure.memory:
        yield f"\n{escape_text(failure.memory)}", ""
    detail = failure.stacks or failure.traceback or "\n".join(failure.log_tail[-10:])
    if detail:
        yield f"\n{escape_text(detail.rstrip())}", ""
