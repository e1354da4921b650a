"""The content of reports: complete, small, and without any effect on a browser."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from typing import Any

import pytest
from job_views import NOW, view
from markdown_it import MarkdownIt
from parsed_html import Element, parse
from test_hostile_cards import ATTACKS, everywhere

from cloudtrain._display.view import moment
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.cost import Cost
from cloudtrain.errors import JobNotFound
from cloudtrain.index import IndexEntry, add_job, remove_job
from cloudtrain.observe import Goodput
from cloudtrain.observe.metric_series import Point
from cloudtrain.observe.stacks import GROUP, TAKEN
from cloudtrain.observe.summary import summarize
from cloudtrain.platforms import Request
from cloudtrain.watch.report import Gathered, render
from cloudtrain.watch.report.axes import Axis
from cloudtrain.watch.report.curves import Curve, plot
from cloudtrain.watch.report.gather import gather, shown_request

EVENTS = [
    {"time": NOW - 90, "source": "supervisor", "event": "attempt", "attempt": 0},
    {"time": NOW - 90, "source": "algo-1", "event": "phase", "phase": "fetch", "state": "began"},
    {
        "time": NOW - 80,
        "source": "algo-1",
        "event": "phase",
        "phase": "fetch",
        "state": "ended",
        "seconds": 10.0,
    },
    {"time": NOW - 80, "source": "algo-1", "event": "phase", "phase": "train", "state": "began"},
    {"time": NOW - 50, "source": "supervisor", "event": "attempt", "attempt": 1},
    {"time": NOW - 50, "source": "algo-1", "event": "phase", "phase": "train", "state": "began"},
]

SECRET = "sunshine-" + "k3y"


def gathered(series: Any = None, request: Any = None, events: Any = (), **fields: Any) -> Gathered:
    """A job with these facts."""
    found = replace(view(series, **fields), summary=summarize(events))
    return Gathered(found.description.name, "fake", NOW, NOW - 100, found, request or {})


def page(*jobs: Gathered) -> Element:
    html = render(jobs)
    assert html.startswith("<!DOCTYPE html>\n")
    return parse(html.removeprefix("<!DOCTYPE html>\n"))


def facts(found: Element) -> dict[str, str]:
    return {label.text: value.text for label, value in zip(found.all("dt"), found.all("dd"), strict=True)}


def rows(found: Element) -> list[list[str]]:
    return [[cell.text for cell in row.all("th") + row.all("td")] for row in found.all("tr")]


def test_the_report_of_a_failed_job() -> None:
    failure = FailureReport(
        FailureClass.MISSING_DATA, "no such file", "Check the channels.", rank=1, host="algo-2",
        exception_type="FileNotFoundError", traceback="Traceback\n  line 4",
        memory="Memory of the host in the last minute:\n   1 s before the end",
    )  # fmt: skip
    job = gathered(
        {"loss": [Point(NOW - 80 + at, 3.0 - at, at) for at in range(3)]},
        {"host_count": 2, "instance_type": "local", "hyperparameters": {"lr": 0.1, "sagemaker_program": "train.py"}},
        EVENTS,
        status=JobStatus.FAILED, ended_at=NOW, failure=failure, phases={"fetch": 10.0}, git_commit="4d5e6f",
        goodput=Goodput(0.875, 80, 70, {"queue": 10.0}, "steps"), cost=Cost(1234.5), attempt=1,
    )  # fmt: skip
    found = page(job)
    assert [one.text for one in found.all("h2")] == [
        "Failure", "What ran", "Parameters", "Metrics", "Phases", "Goodput", "Request",
    ]  # fmt: skip
    shown = facts(found)
    assert (shown["hosts"], shown["commit"], shown["cost"], shown["took"]) == (
        "2 × local", "4d5e6f", "about $1,234.50", "1 min 30 s",
    )  # fmt: skip
    assert (shown["lr"], shown["entry point"], shown["attempts"]) == ("0.1", "train.py", "2")
    assert "raised FileNotFoundError: no such file [missing-data]" in found.all("p")[1].text
    assert ["loss", "1", "1", "3", "3"] in rows(found)
    assert ["fetch", "10.0 s"] in rows(found)
    assert [one.text for one in found.all("p") if "87.5%" in one.text]
    curves, phases = found.all("svg")
    assert "step" in [one.text for one in curves.all("text")]
    assert [(one.text, one.attributes["x"], one.attributes["width"]) for one in phases.all("rect")] == [
        ("fetch 10.0 s", "157.2", "61.2"), ("train 30.0 s", "218.4", "183.6"), ("train 50.0 s", "402", "306"),
    ]  # fmt: skip
    assert "restart" in [one.text for one in phases.all("text")]
    assert [one.all("summary")[0].text for one in found.all("details") if "open" in one.attributes] == [
        "Memory",
        "Traceback",
    ]


def test_the_status_of_a_running_job_has_its_date() -> None:
    assert "Running, as of 2027-01-15" in page(gathered()).text


def test_a_job_whose_platform_does_not_answer() -> None:
    job = Gathered("train-1", "slurm", NOW, NOW - 100, gaps=["The platform slurm does not answer: no route"])
    found = page(job)
    assert facts(found)["status"].startswith("unknown, as of ")
    assert "does not answer: no route" in found.text
    assert "slurm does not answer" in page(job, gathered()).text


def test_a_job_that_was_removed_is_in_the_history() -> None:
    add_job(IndexEntry("old", "nowhere", NOW), {"status": "Completed", "ended_at": NOW + 60}, {"lr": "0.25"})
    remove_job("old", "nowhere")
    found = page(gather("old"))
    assert facts(found)["lr"] == "0.25" and "was removed" in found.text
    with pytest.raises(JobNotFound):
        gather("never")


def test_the_page_is_self_contained() -> None:
    html = render(
        [gathered({"loss": [Point(NOW, 1.0), Point(NOW + 1, 2.0)]}, place="https://console.example.org/1")]
    )
    found = parse(html.removeprefix("<!DOCTYPE html>\n"))
    assert not {one.tag for one in found.all()} & {
        "script",
        "link",
        "img",
        "iframe",
        "object",
        "base",
        "form",
    }
    assert not re.search(r"url\(|@import|src=", html)
    policies = [one.attributes["content"] for one in found.all("meta") if "http-equiv" in one.attributes]
    assert policies == ["default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"]
    assert [one.attributes["href"] for one in found.all("a")] == ["https://console.example.org/1"]


def _saying(text: str) -> Gathered:
    """A job that says this wherever it can say something."""
    request = {"hyperparameters": {text: text}, "arguments": [text], "image": text}
    events = [{**event, "phase": text} if "phase" in event else event for event in EVENTS]
    found = replace(everywhere(text), summary=summarize(events))
    return Gathered(text, text, NOW, NOW - 100, found, request, gaps=[text])


@pytest.mark.parametrize("evil", ATTACKS)
def test_the_report_of_a_job_with_a_hostile_name_is_one_page(evil: str) -> None:
    job, harmless = _saying(evil), _saying("https://example.org/a")
    tags = {one.tag for jobs in ([harmless], [harmless] * 2) for one in page(*jobs).all()}
    for document in (render([job]), render([job, job])):
        assert not any(character in document for character in "\x00\x1b\x07\u202e\u2028\ud800")
        for element in parse(document.removeprefix("<!DOCTYPE html>\n")).all():
            assert element.tag in tags
            assert not any(name.startswith("on") for name in element.attributes)
            assert (element.attributes.get("href") or "https://").startswith(("https://", "http://"))
    for jobs in ([job], [job, job]):
        html = MarkdownIt("commonmark", {"html": True}).enable("table").render(render(jobs, markdown=True))
        assert {one.tag for one in parse(html).all()} <= {
            "", "h1", "h2", "p", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "strong",
        }  # fmt: skip


def test_no_secret_is_in_it() -> None:
    body = {
        "hyperparameters": {
            "api_key": json.dumps(SECRET),
            "lr": "0.1",
            "nested": json.dumps({"password": SECRET}),
        },
        "arguments": ["--token", SECRET, "--epochs", "3"],
        "environment": {
            "WANDB_API_KEY": SECRET,
            "MLFLOW_TRACKING_URI": f"https://me:{SECRET}@mlflow.example.org",
        },
        "objects": [{"env": [{"name": "A", "value": f"https://me:{SECRET}@example.org"}]}],
    }
    job = gathered(request=shown_request(Request("fake", "train-1", body)))
    other = gathered(request=shown_request(Request("fake", "train-2", {})))
    for jobs in ([job], [job, other]):
        for markdown in (False, True):
            text = render(jobs, markdown=markdown)
            assert SECRET not in text
            assert "***" in text or r"\*\*\*" in text
    assert facts(page(job))["arguments"] == "--token *** --epochs 3"


def _heights(picture: Element) -> list[float]:
    (line,) = picture.all("polyline")
    return [float(pair.partition(",")[2]) for pair in (line.attributes["points"] or "").split()]


def test_no_spike_vanishes_among_many_points() -> None:
    points = [Point(NOW + step, math.sin(step), step) for step in range(100_000)]
    points[33_333] = Point(NOW, -100.0, 33_333)
    points[77_777] = Point(NOW, 100.0, 77_777)
    html = render([gathered({"loss": points})])
    assert len(html) < 100_000
    top, *_, bottom = sorted(heights := _heights(parse(html.removeprefix("<!DOCTYPE html>\n")).all("svg")[0]))
    assert (top, bottom) == (24, 186)
    assert sum(abs(height - 105) > 2 for height in heights) == 2  # all others are in the middle


def test_many_metrics_and_jobs_stay_below_a_megabyte() -> None:
    series = {
        f"metric {number} {'x' * 200}": [
            Point(NOW + step, math.sin(step * number), step) for step in range(400)
        ]
        for number in range(1000)
    }
    assert len(render([gathered(series)])) < 1_000_000
    few = dict(list(series.items())[:100])
    assert len(render([gathered(few, name=f"train-{number}") for number in range(20)])) < 1_000_000


def test_the_spread_of_the_ranks_is_drawn() -> None:
    points = [Point(NOW, 2.0, step, 1.0, 3.0, 2) for step in range(3)]
    picture = parse(plot("loss", [Curve("train-1", points, NOW)], 300))
    (area,) = picture.all("polygon")
    assert area.attributes["points"] == "64,24 386,24 708,24 708,186 386,186 64,186"


def test_values_that_are_not_numbers_leave_a_gap() -> None:
    values = [1.0, 2.0, math.nan, math.inf, 3.0, 4.0, math.nan]
    points = [Point(NOW, value, step) for step, value in enumerate(values)]
    assert len(parse(plot("loss", [Curve("train-1", points, NOW)], 300)).all("polyline")) == 2
    assert plot("loss", [Curve("train-1", [Point(NOW, math.nan)], NOW)], 300) == ""
    assert ["loss", "nan", "1", "4", "7 (3 not finite)"] in rows(page(gathered({"loss": points})))


def test_a_clock_that_was_set_back_draws_no_loop() -> None:
    points = [Point(NOW + at, at) for at in (0, 1, 2, 1.5, 3)]
    (line,) = parse(plot("loss", [Curve("train-1", points, NOW)], 300)).all("polyline")
    across = [float(pair.partition(",")[0]) for pair in (line.attributes["points"] or "").split()]
    assert across == sorted(across)


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0, 10, [0, 2, 4, 6, 8, 10]),
        (-1.5, 1.5, [-1, 0, 1]),
        (5, 5, [5]),
        (0, 5e-324, [0]),
        (0.0123, 0.0456, [0.02, 0.03, 0.04]),
    ],
)  # fmt: skip
def test_the_numbers_of_an_axis_are_round(low: float, high: float, ticks: list[float]) -> None:
    assert Axis(low, high).ticks() == pytest.approx(ticks)


def test_an_axis_of_the_largest_numbers() -> None:
    points = [Point(NOW, value, step) for step, value in enumerate([-1.7e308, 1.7e308])]
    assert _heights(parse(plot("loss", [Curve("train-1", points, NOW)], 300))) == [186, 24]


def test_the_comparison_begins_with_what_differs() -> None:
    request = {
        "host_count": 1,
        "max_run": 60,
        "hyperparameters": {"lr": 0.1, "epochs": 3},
        "place": "/jobs/train-1/out",
    }
    other = {
        **request,
        "hyperparameters": {"lr": 0.5, "epochs": 3},
        "max_run": 90,
        "place": "/jobs/train-2/out",
    }
    series = {"loss": [Point(NOW, 3.0, 0), Point(NOW, 2.0, 1)]}
    first = gathered(series, request, phases={"train": 60.0}, git_commit="aaa")
    second = gathered(series, other, name="train-2", phases={"train": 90.0}, git_commit="bbb")
    found = page(first, second)
    assert found.all("h2")[0].text == "What differs"
    assert rows(found.all("table")[0]) == [
        ["parameter", "train-1", "train-2"],
        ["lr", "0.1", "0.5"],
        ["commit", "aaa", "bbb"],
        ["max_run", "60", "90"],
    ]
    assert ["train", "1 min 0 s", "1 min 30 s"] in rows(found)
    (picture,) = found.all("svg")
    assert len(picture.all("polyline")) == 2
    assert {"train-1", "train-2"} <= {one.text for one in picture.all("text")}
    assert "are the same" in page(first, first).text


def test_a_job_that_hangs_shows_which_rank_since_when_and_the_stacks() -> None:
    text = "read (train.py:8) <script>alert(1)</script>"
    hang = {
        "ranks": "1",
        "rank": 1,
        "host": "algo-2",
        "message": "rank 1 is in read",
        "stack": text,
        "seconds": 300,
    }
    began = {"time": NOW - 10, "source": "algo-1", "event": "hanging", "state": "began", **hang}
    found = page(gathered(events=[*EVENTS, began]))
    [section] = [one for one in found.all("section") if one.all("h2")[0].text == "Hang"]
    assert f"no sign of life for 5 min: rank 1 is in read (since {moment(NOW - 310)})" in section.text
    assert [one.text for one in section.all("pre")] == [text] and not found.all("script")
    over = {"time": NOW - 5, "source": "algo-1", "event": "hanging", "state": "ended"}
    for job in (gathered(events=[*EVENTS, began, over]), gathered(events=[began], status=JobStatus.STOPPED)):
        assert "no sign of life for 5 min:" not in page(job).text
    sign = "rank 1 on algo-2 used the network"
    summary = summarize([*EVENTS, began, {**over, "sign": sign}])
    assert summary.details["last hang"] == f"no sign of life for 5 min, until {sign}"
    group = {"id": "7", "source": "algo-1", "ranks": "0", "count": 1, "stack": "all_reduce"}
    events = [
        *EVENTS,
        began,
        {**group, "event": GROUP},
        {"id": "7", "event": TAKEN, "time": NOW - 10, "source": "algo-1", "ranks": 2},
    ]
    job = gathered(events=events)
    assert job.view and job.view.summary
    shown = page(replace(job, view=replace(job.view, stacks=job.view.summary.stacks.last)))
    [section] = [one for one in shown.all("section") if one.all("h2")[0].text == "Hang"]
    assert [one.text for one in section.all("pre")] == ["all_reduce"]
