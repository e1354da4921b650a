"""A job as a card of HTML, and several as a table: pure functions.

They load nothing from elsewhere, and run no script. All text from a job or a platform is escaped, and cut if it is
long, so that they stay small.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.filesize import decimal

from cloudtrain._display.chart import chart
from cloudtrain._display.facts import goodput_share, goodput_times, places
from cloudtrain._display.markup import STYLE, Html, block, element, line, link, shortened
from cloudtrain._display.steps import brief_progress, span, step_facts
from cloudtrain._display.view import JobView, moment
from cloudtrain._display.waits import waits_text
from cloudtrain.contract import FailureReport, JobStatus
from cloudtrain.platforms import HostState, JobDescription, JobState

MOST_METRICS = 20
MOST_HOSTS = 8
"""The most hosts that are shown one by one; more are counted by their states, with a list to unfold."""
MOST_LISTED = 200
"""The most hosts in that list."""
MOST_STATES = 30
MOST_DETAILS = 30
LONGEST_DETAIL = 8000
"""The most characters of a traceback."""
LONGEST_NAME = 80

MARKS = {
    JobStatus.PENDING: ("○", "pending"),
    JobStatus.RUNNING: ("●", "running"),
    JobStatus.STOPPING: ("●", "stopped"),
    JobStatus.COMPLETED: ("✓", "completed"),
    JobStatus.FAILED: ("✗", "failed"),
    JobStatus.STOPPED: ("■", "stopped"),
    JobStatus.INTERRUPTED: ("■", "stopped"),
}
"""A sign, and the name of a colour, for each state."""


def card(view: JobView, notes: Sequence[tuple[str, str]] = ()) -> Html:
    """The card of a job.

    Args:
        notes: the last lines, such as how to continue: texts, each with the code for it.
    """
    description = view.description
    sign, kind = MARKS[description.status]
    return _frame(
        kind,
        f"Job {description.name}: {description.status}",
        element("p", element("span", sign, aria_hidden="true"), " ", *_heading(view)),
        element("dl", *_rows(view)),
        *([_failure(description.failure)] if description.failure else []),
        *_warnings(description.warnings),
        *(element("p", text, " ", element("code", code)) for text, code in notes),
    )


def problem_card(job_name: str, platform: str, problem: str, hint: str = "") -> Html:
    """The card of a job that cannot be described."""
    return _frame(
        "pending",
        f"Job {job_name}",
        element("p", element("b", "State unknown"), " ", element("code", job_name), f" on {platform}"),
        element("p", problem, *([" ", hint] if hint else []), class_="warning"),
    )


def _frame(kind: str, label: str, *children: Html) -> Html:
    style = element("style", STYLE)
    return element(
        "div", style, *children, class_=f"cloudtrain-job is-{kind}", role="group", aria_label=label
    )


def _heading(view: JobView) -> Iterator[Html]:
    description = view.description
    yield element("b", str(description.status))
    yield Html(f" {element('code', description.name)} ")
    parts = [f"on {description.platform}"]
    if view.seconds is not None:
        parts.append(span(view.seconds))
    if description.attempt:
        parts.append(f"attempt {description.attempt + 1}")
    if not description.status.is_final:
        parts.append(f"as of {moment(view.at)}")
    yield element("span", " · ".join(parts), class_="dim")


def _rows(view: JobView) -> Iterator[Html]:
    """The rows of the list: labels and values."""
    description = view.description
    if description.reason and not (view.states and view.states[-1].message == description.reason):
        yield from _row("reason", line(description.reason))
    if view.states:
        yield from _row("state", _states(view.states))
    if description.phase or description.phases:
        yield from _row("phases", _phases(description))
    progress = _progress(description)
    if progress:
        yield from _row("progress", progress)
    if description.hosts:
        yield from _row("hosts", _hosts(description.hosts))
    yield from _metrics(view)
    if description.goodput:
        share, times = goodput_share(description), goodput_times(description.goodput)
        shown = ("time", times) if share is None else ("goodput", f"{share:.1%} ({times})")
        yield from _row(shown[0], line(shown[1]))
    if waits := waits_text(view):
        yield from _row("waits for", line(waits))
    for label, fact in list(description.details.items())[:MOST_DETAILS]:
        yield from _row(label, line(fact))
    if view.cost is not None:
        yield from _row("cost", line(view.cost.line()))
    if description.git_commit:
        yield from _row("commit", element("code", description.git_commit))
    for label, place in places(view):
        yield from _row(label, link(place))
    yield from _row("logs", element("code", f"cloudtrain logs {shlex.quote(description.name)}"))


def _row(label: str, value: Html) -> tuple[Html, Html]:
    return element("dt", line(label, LONGEST_NAME)), element("dd", value)


def _states(states: Sequence[JobState]) -> Html:
    """The last state, with those before it to unfold."""
    lines = [_state(state) for state in states[-MOST_STATES:]]
    if len(lines) == 1:
        return lines[0]
    earlier = element("ul", *(element("li", one) for one in reversed(lines[:-1])))
    return element("details", element("summary", lines[-1]), earlier)


def _state(state: JobState) -> Html:
    return line(f"{moment(state.time)} {state.name}" + (f": {state.message}" if state.message else ""))


def _phases(description: JobDescription) -> Html:
    """The phases that are done, with their seconds, and the current one."""
    done = [
        line(f"{name} {span(took)}", LONGEST_NAME)
        for name, took in list(description.phases.items())[-MOST_DETAILS:]
        if took >= 0.05 and name != description.phase
    ]
    current = [element("b", line(description.phase, LONGEST_NAME))] if description.phase else []
    return Html(" › ".join([*done, *current])) or line("none took longer than 0.05 s")


def _progress(description: JobDescription) -> Html:
    """The bytes that all hosts have moved in the current phase, and the last step."""
    parts = []
    hosts = [host for host in description.hosts if host.state == description.phase]
    done, total = sum(host.done for host in hosts), sum(host.total for host in hosts)
    if 0 < done <= total:
        label = f"{decimal(done)} of {decimal(total)}"
        bar = element("progress", f"{done / total:.0%}", value=done, max=total, aria_label=label)
        parts.append(Html(f"{bar}{line(label)}"))
    elif done:
        parts.append(line(decimal(done)))
    steps = step_facts(description)
    if steps:
        bar = Html("")
        if description.progress is not None:
            label = f"{description.progress:.0%} of the steps"
            bar = element("progress", value=description.progress, max=1, aria_label=label)
        parts.append(Html(f"{bar}{line(steps)}"))
    return Html(" · ".join(parts))


def _hosts(hosts: Sequence[HostState]) -> Html:
    if len(hosts) <= MOST_HOSTS:
        if any(host.message for host in hosts):
            return element("ul", *(element("li", _host(host)) for host in hosts))
        return Html(" · ".join(_host(host) for host in hosts))
    counts = Counter(host.state for host in hosts).most_common(MOST_HOSTS)
    summary = ", ".join(f"{count:,} {state}" for state, count in counts)
    listed = [element("li", _host(host)) for host in hosts[:MOST_LISTED]]
    if len(hosts) > MOST_LISTED:
        listed.append(element("li", f"and {len(hosts) - MOST_LISTED:,} more"))
    return element("details", element("summary", summary), element("ul", *listed))


def _host(host: HostState) -> Html:
    message = f" ({host.message})" if host.message else ""
    return Html(f"{element('code', line(host.name, LONGEST_NAME))} {line(host.state + message)}")


def _metrics(view: JobView) -> Iterator[Html]:
    metrics = view.description.metrics
    for name, value in list(metrics.items())[:MOST_METRICS]:
        course = [point.value for point in view.series.get(name, ())]
        picture = chart(name, course) if len(course) > 1 else Html("")
        yield from _row(name, Html(f"{element('span', f'{value:g}', class_='number')} {picture}"))
    if len(metrics) > MOST_METRICS:
        yield from _row("metrics", line(f"and {len(metrics) - MOST_METRICS:,} more, in job.metrics"))


def _failure(failure: FailureReport) -> Html:
    parts = [element("p", element("b", failure.summary()), f" [{failure.failure_class}]")]
    if failure.hint:
        parts.append(element("p", failure.hint))
    for title, text in (
        ("Stacks of all ranks", failure.stacks),
        ("Memory", failure.memory),
        ("Traceback", failure.traceback),
        ("Last lines of the output", "\n".join(failure.log_tail)),
    ):
        if text.strip():
            detail = element("pre", block(text, LONGEST_DETAIL), tabindex=0)
            parts.append(element("details", element("summary", title), detail))
    return element("div", *parts, class_="failure")


def _warnings(warnings: Sequence[str]) -> Iterator[Html]:
    for warning in warnings[-MOST_DETAILS:]:
        yield element("p", element("b", "Warning:"), f" {warning}", class_="warning")


MOST_IN_TABLE = 4
"""The most metrics in one row."""
HEADINGS = ("state", "job", "phase", "progress", "took", "metrics", "why")


def table(views: Sequence[JobView], count: int) -> Html:
    """A row for each job.

    Args:
        count: the number of all jobs, of which ``views`` are the first.
    """
    head = element("tr", *(element("th", heading, scope="col") for heading in HEADINGS))
    body = [element("tr", *_cells(view)) for view in views]
    return element(
        "div",
        element("style", STYLE),
        element("table", element("thead", head), element("tbody", *body)),
        *([element("p", f"and {count - len(views):,} more")] if count > len(views) else []),
        class_="cloudtrain-job",
        role="group",
        aria_label=f"{count:,} jobs",
    )


def _cells(view: JobView) -> Iterator[Html]:
    sign, _ = MARKS[view.description.status]
    state, name, *others = _texts(view)
    yield element("td", element("span", sign, aria_hidden="true"), Html(" "), element("b", state))
    yield element("td", element("code", name))
    for text in others:
        yield element("td", line(text, LONGEST_NAME))


def _texts(view: JobView) -> Iterator[str]:
    description = view.description
    yield str(description.status)
    yield description.name
    yield description.phase or ""
    yield brief_progress(description)
    yield "" if view.seconds is None else span(view.seconds)
    metrics = list(description.metrics.items())[:MOST_IN_TABLE]
    yield ", ".join(f"{shortened(name, LONGEST_NAME)} {value:g}" for name, value in metrics)
    yield description.failure.summary() if description.failure else description.reason
