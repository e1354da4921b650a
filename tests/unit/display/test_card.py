"""The content of a card."""

from __future__ import annotations

import pytest
from job_views import NOW, view
from parsed_html import Element, parse

from cloudtrain._display.card import card, table
from cloudtrain._display.facts import text
from cloudtrain._display.steps import span
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.observe import Goodput
from cloudtrain.observe.metric_series import Point
from cloudtrain.platforms import HostState, JobState


def _rows(page: Element) -> dict[str, Element]:
    return {label.text: value for label, value in zip(page.all("dt"), page.all("dd"), strict=True)}


def test_a_running_job() -> None:
    found = view(
        {"loss": [Point(NOW, 3.0), Point(NOW, 2.0), Point(NOW, 1.0)]},
        phase="train", phases={"fetch": 7.2, "unpack": 0.01}, step=1200,
        metrics={"loss": 1.0, "accuracy": 0.5}, hosts=[HostState("algo-1", "train"), HostState("algo-2", "train")],
        goodput=Goodput(0.875, 80, 70, {"queue": 10.0}, "steps"), attempt=1, place="https://console.example.org/1",
        states=[JobState(NOW, "Pending", "no GPUs"), JobState(NOW, "Starting", "pulls the image")],
    )  # fmt: skip
    page = parse(card(found))
    rows = {label: value.text for label, value in _rows(page).items()}
    assert "Running train-1 on fake · 1 min 30 s · attempt 2 · as of 20" in page.text
    assert rows["phases"] == "fetch 7.2 s › train"
    assert rows["progress"] == "step 1,200"
    assert rows["hosts"] == "algo-1 train · algo-2 train"
    assert rows["goodput"] == "87.5% (steps 1 min 10 s, queue 10.0 s)"
    assert rows["accuracy"].strip() == "0.5"
    assert rows["logs"] == "cloudtrain logs train-1"
    assert "Starting: pulls the image" in rows["state"]
    assert [one.attributes["href"] for one in page.all("a")] == ["https://console.example.org/1"]
    (picture,) = page.all("svg")
    assert picture.attributes["aria-label"] == "loss: from 3 to 1, lowest 1, highest 3"
    assert picture.all("polyline")[0].attributes["points"] == "3,3 80,12 157,21"
    assert page.all("div")[0].attributes["aria-label"] == "Job train-1: Running"


def test_a_reason_is_shown_once() -> None:
    waits = JobState(NOW, "Pending", "no GPUs")
    assert "reason" not in _rows(parse(card(view(reason="no GPUs", states=[waits]))))
    assert _rows(parse(card(view(reason="preempted", states=[waits]))))["reason"].text == "preempted"


def test_the_bytes_that_all_hosts_have_to_move() -> None:
    hosts = [HostState(f"algo-{number}", "fetch", done=10_000_000, total=40_000_000) for number in (1, 2)]
    (bar,) = parse(card(view(phase="fetch", hosts=hosts))).all("progress")
    assert bar.attributes == {"value": "20000000", "max": "80000000", "aria-label": "20.0 MB of 80.0 MB"}
    assert bar.text == "25%"  # where the element is not known


def test_a_failure_is_explained_and_its_traceback_folded() -> None:
    failure = FailureReport(
        FailureClass.MISSING_DATA, "no such file: 'a.csv'", "Check the channels.", rank=1, host="algo-2",
        exception_type="FileNotFoundError", traceback="Traceback\n  line 4", log_tail=("epoch 1", "epoch 2"),
    )  # fmt: skip
    page = parse(card(view(status=JobStatus.FAILED, ended_at=NOW, failure=failure)))
    assert "rank 1 on algo-2 raised FileNotFoundError: no such file: 'a.csv' [missing-data]" in page.text
    assert "Check the channels." in page.text
    assert [(one.all("summary")[0].text, one.all("pre")[0].text) for one in page.all("details")] == [
        ("Traceback", "Traceback\n  line 4"),
        ("Last lines of the output", "epoch 1\nepoch 2"),
    ]
    assert not any("open" in one.attributes for one in page.all("details"))
    assert "as of" not in page.text


def test_many_hosts_are_counted() -> None:
    hosts = [HostState(f"algo-{number}", "Pending" if number > 990 else "train") for number in range(1, 1001)]
    row = _rows(parse(card(view(hosts=hosts))))["hosts"]
    assert row.all("summary")[0].text == "990 train, 10 Pending"
    assert len(row.all("li")) == 201
    assert row.all("li")[-1].text == "and 800 more"


def test_many_metrics_are_counted() -> None:
    rows = _rows(parse(card(view(metrics={f"metric {number}": 1.0 for number in range(1000)}))))
    assert rows["metrics"].text == "and 980 more, in job.metrics"


def test_an_old_card_is_small() -> None:
    series = {"loss": [Point(NOW, number % 7) for number in range(100_000)]}
    assert len(card(view(series, metrics={"loss": 1.0}))) < 5000


def test_nothing_is_loaded_from_elsewhere() -> None:
    html = card(view(metrics={"loss": 1.0}, model_data="s3://bucket/model.tar.gz"))
    assert not any(word in html for word in ("http", "url(", "@import", "src=", "<link"))


def test_the_text_has_the_same_facts() -> None:
    found = view(
        {"loss": [Point(NOW, 2.0), Point(NOW, 1.0)]},
        metrics={"loss": 1.0},
        warnings=["the disk is full"],
        phases={"launch": 0.3, "train": 89.0},
    )
    lines = text(found, [("Attach:", "job.wait()")]).splitlines()
    assert lines == [
        "Job train-1 on fake",
        "status        Running",
        "loss          1  █▁",
        "took          1 min 30 s (launch 0.3 s, train 1 min 29 s)",
        "logs          cloudtrain logs train-1",
        "warning: the disk is full",
        "Attach: job.wait()",
    ]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3725, "1 h 2 min"), (360000, "100 h 0 min")],
)
def test_durations(seconds: float, shown: str) -> None:
    assert span(seconds) == shown


def test_a_table_of_jobs() -> None:
    failure = FailureReport(FailureClass.USER_ERROR, "no", rank=1, host="algo-2", exception_type="KeyError")
    views = [
        view(name="sweep-0", phase="train", step=5, total_steps=10, progress=0.5, metrics={"loss": 0.5}),
        view(name="sweep-1", status=JobStatus.FAILED, ended_at=NOW, failure=failure),
    ]
    page = parse(table(views, 1000))
    assert [[cell.text for cell in row.all("td")] for row in page.all("tr")[1:]] == [
        ["● Running", "sweep-0", "train", "50%", "1 min 30 s", "loss 0.5", ""],
        ["✗ Failed", "sweep-1", "", "", "1 min 30 s", "", "rank 1 on algo-2 raised KeyError: no"],
    ]
    assert page.all("p")[0].text == "and 998 more"
