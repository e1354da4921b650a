"""Sweeps in lists, on their pages and in reports, from records that are written as the controller writes them."""

from __future__ import annotations

import io
import json
import os
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from large_sweep import large_sweep
from parsed_html import parse
from rich.cells import cell_len
from rich.console import Console

from cloudtrain._display.view import JobView
from cloudtrain.cli.report import command as report
from cloudtrain.cli.top import command as top
from cloudtrain.contract import JobStatus
from cloudtrain.cost import Cost
from cloudtrain.errors import JobNotFound, StorageError
from cloudtrain.index import IndexEntry, add_job
from cloudtrain.platforms import JobDescription
from cloudtrain.sweep.journal import sweeps_home
from cloudtrain.watch.dashboard.jobs import Jobs, Wanted
from cloudtrain.watch.report import render_sweep
from cloudtrain.watch.sweeps import known_sweeps, look_at_sweep, sweep_of
from cloudtrain.watch.top.app import Top
from cloudtrain.watch.top.jobs import Row
from cloudtrain.watch.top.list_page import Choice, list_page
from cloudtrain.watch.top.poller import Poller
from cloudtrain.watch.top.sweep_page import sweep_page

HOSTILE = "<img src=x onerror=alert(1)>\x1b[31m"


def test_the_trials_of_a_sweep_are_one_row() -> None:
    add_job(IndexEntry("first", "local", time.time() - 9000))
    large_sweep("opt", 30, indexed=True)
    add_job(IndexEntry("other-0001", "local", time.time()))
    jobs = Jobs()
    listed = jobs.page(Wanted(), with_states=False)
    assert [(row.name, row.is_sweep) for row in listed.rows] == [
        ("other-0001", False), ("opt", True), ("first", False),
    ]  # fmt: skip
    assert listed.count == 3
    sweep = listed.rows[1]
    assert (sweep.status, sweep.progress) == ("Completed", "30 of 30 trials")
    assert sweep.why.startswith("best loss=0.5") and "depth=" in sweep.why
    found = jobs.page(Wanted(name="opt-"), with_states=False)
    assert found.count == 30 and not any(row.is_sweep for row in found.rows)


def test_a_sweep_whose_events_are_damaged_is_shown_as_such() -> None:
    large_sweep("opt", 2, indexed=True)
    (sweeps_home() / "opt" / "events.jsonl").write_text('{"event": "asked"}\n')
    [row] = Jobs().page(Wanted(), with_states=False).rows
    assert row.status == "Unknown" and "damaged" in row.why
    with pytest.raises(StorageError):
        look_at_sweep("opt")
    with pytest.raises(JobNotFound):
        look_at_sweep("../sweeps/opt")


def test_only_names_of_trials_belong_to_a_sweep() -> None:
    large_sweep("opt", 1)
    known = known_sweeps()
    assert [sweep_of(name, known) for name in ("opt-0000", "opt-10000", "opt", "opt-1", "it-0000")] == [
        "opt", "opt", "", "", "",
    ]  # fmt: skip


def test_the_report_of_a_sweep() -> None:
    large_sweep("opt", 60)
    html = render_sweep("opt")
    page = parse(html.removeprefix("<!DOCTYPE html>\n"))
    titles = [one.text for one in page.all("h2")]
    assert titles == ["Sweep", "Best so far", "Importance of parameters", "Parallel coordinates", "Trials"]
    labels = [one.text for one in page.all("dt")]
    assert "lr" in labels and page.all("dd")[labels.index("lr")].text.strip().startswith(("9", "100"))
    rows = [[cell.text for cell in row.all("th") + row.all("td")] for row in page.all("tr")]
    assert rows[0] == ["trial", "state", "loss", "lr", "depth", "kind", "took", "cost", ""]
    assert len(rows) == 61 and rows[1][1] == "Completed" and rows[-1][1] == "Failed"
    values = [float(row[2]) for row in rows[1:] if row[2]]
    assert values == sorted(values)
    assert "<b>boom" not in html and "\x1b" not in html
    lines = [one for one in page.all("polyline") if one.all("title")]
    assert len(lines) == sum(row[1] == "Completed" for row in rows)


def test_few_trials_and_a_missing_library_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    large_sweep("few", 5, finished=False)
    text = render_sweep("few", markdown=True)
    assert "Too few trials have completed: 5, and 10 are needed" in text
    assert look_at_sweep("few").status == "Interrupted"
    large_sweep("many", 40)
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "Run: pip install cmaes optuna scipy" in render_sweep("many", markdown=True)
    large_sweep("empty", 0)
    assert "No trial has completed with a value yet." in render_sweep("empty")


def test_a_thousand_hostile_trials_are_shown_soon() -> None:
    large_sweep("big", 1000, space={"x": "0.0..1.0", HOSTILE: [HOSTILE, 1, True]}, indexed=True)
    began = time.process_time()
    html = render_sweep("big")
    assert "<img" not in html and "\x1b" not in html and len(html) < 1_500_000
    assert time.process_time() - began < 60  # about two, a third of them Optuna's
    began = time.process_time()
    assert Jobs().page(Wanted(), with_states=False).count == 1
    assert time.process_time() - began < 20


def test_report_takes_the_name_of_a_sweep(tmp_path: Path) -> None:
    large_sweep("opt", 12)
    os.chdir(tmp_path)
    result = CliRunner().invoke(report, ["opt"])
    assert result.exit_code == 0, result.output
    assert "Parallel coordinates" in (tmp_path / "report.html").read_text()


def test_top_lists_a_sweep_as_one_row_that_opens() -> None:
    large_sweep("opt", 10, finished=False)
    view = look_at_sweep("opt")
    trials = [Row(f"opt-{number:04}", "local", problem="away", sweep=view) for number in (9, 8)]
    running = JobView(JobDescription("opt", "local", JobStatus.RUNNING, 1.0), 2.0, cost=Cost(2.0, "EUR"))
    costs = list_page(
        [Row(name, "local", running, sweep=view) for name in ("opt-0009", "opt-0010")], 160, 20, Choice()
    )
    assert "7.00 EUR" in costs[1].plain, "of ten that have ended, failed ones too, and one that runs"
    rows = [Row("new", "local", problem="away"), *trials, Row("old", "local", problem="away")]

    def shown() -> list[str]:
        return [line.plain for line in list_page(rows, 160, 20, choice)]

    choice = Choice()
    assert [line.split()[:2] for line in shown()[1:]] == [["▸", "new"], ["▸", "opt"], ["old", "local"]]
    assert "10/10" in shown()[2] and "2 trials run. best loss=0.5" in shown()[2]
    choice.move(rows, 1)
    assert choice.chosen(rows) is None
    assert [line.split()[:3] for line in shown()[2:4]] == [
        ["▸", "▾", "opt"],
        ["opt-0009", "local", "Unknown"],
    ]
    choice.move(rows, 1)
    assert choice.chosen(rows) == trials[0]
    choice.move(rows, -1)
    assert choice.chosen(rows) is None and len(shown()) == 4
    assert len(list_page(rows, 160, None)) == 4
    found = [line.to_dict() for line in Choice.all_open(rows).lines(rows)]
    assert [(line["kind"], line["name"], line.get("sweep")) for line in found] == [
        ("job", "new", None), ("sweep", "opt", None), ("job", "opt-0009", "opt"), ("job", "opt-0008", "opt"),
        ("job", "old", None),
    ]  # fmt: skip
    assert (found[1]["ended"], found[1]["total"], found[1]["best"]["value"]) == (
        10,
        10,
        pytest.approx(0.5, abs=0.01),
    )
    assert found[1]["running"] == ["opt-0009", "opt-0008"]


def test_top_shows_a_sweep_with_the_marks_of_its_trials_on_each_axis() -> None:
    large_sweep("opt", 60)
    result = CliRunner().invoke(top, ["opt"])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert lines[0].startswith("opt") and "60 of 60 trials" in result.output
    assert any(line.startswith("best so far   loss=0.5") for line in lines)
    [share] = [line for line in lines if line.startswith("importance")]
    assert share.endswith("lr") and "█" in share
    [heading] = [number for number, line in enumerate(lines) if line.startswith("TRIAL")]
    assert lines[heading].split() == ["TRIAL", "loss", "lr", "depth", "kind"]
    trials = [line.split() for line in lines[heading + 1 :]]
    values = [float(cells[1]) for cells in trials]
    assert values == sorted(values) and len(values) > 10
    assert all(sum("●" in cell for cell in cells) == 3 for cells in trials)
    found = json.loads(CliRunner().invoke(top, ["opt", "--json"]).output)
    assert found["kind"] == "sweep" and len(found["trials"]) == 60
    assert max(found["importance"], key=found["importance"].get) == "lr"
    assert found["best_over_time"][-1][1] == values[0]


def test_the_page_of_a_sweep_fits_the_screen_and_is_safe() -> None:
    large_sweep("big", 40, space={"x": "0.0..1.0", HOSTILE: [HOSTILE, 1, True]})
    view = look_at_sweep("big")
    page = sweep_page(view, 50, 12)
    assert len(page) == 12 and all(cell_len(line.plain) <= 50 for line in page)
    assert "\x1b" not in "".join(line.plain for line in sweep_page(view, 200, None))
    large_sweep("empty", 0)
    assert "no trial has completed" in sweep_page(look_at_sweep("empty"), 80, 24)[2].plain


def test_on_a_narrow_screen_parameters_are_named_and_no_value_lacks_its_axis() -> None:
    large_sweep("opt", 40)
    lines = [line.plain for line in sweep_page(look_at_sweep("opt"), 40, None)]
    [first] = [number for number, line in enumerate(lines) if line.startswith("importance")]
    assert {line.split()[-1] for line in lines[first : first + 3]} == {"lr", "depth", "kind"}
    [heading] = [number for number, line in enumerate(lines) if line.startswith("TRIAL")]
    assert lines[heading].split() == ["TRIAL", "loss", "lr"]
    assert all(len(line.split()) == 4 for line in lines[heading + 1 :]), (
        "the name, the loss, the axis and its value"
    )


def test_a_key_opens_the_page_of_a_sweep_and_esc_goes_back() -> None:
    large_sweep("opt", 12, finished=False)
    row = Row("opt-0009", "local", problem="away", sweep=look_at_sweep("opt"))
    screen = Top(Console(file=io.StringIO(), width=100, height=20), "opt", None)
    assert screen._sweep is not None
    until = time.monotonic() + 200
    while screen._sweep.result is None:
        assert time.monotonic() < until and not screen._sweep.problem
        time.sleep(0.01)
    assert any(line.plain.startswith("best so far") for line in screen._lines())
    screen._press("escape")
    assert screen._sweep is None and screen._jobs is not None
    screen._jobs.stop()
    screen._jobs = Poller(lambda: [row], [row])
    screen._press("s")
    assert screen._sweep is not None and screen._poller is screen._sweep
    screen._sweep.stop()
