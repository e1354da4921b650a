"""Reports of steps: few events, of one rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from cloudtrain.observe import read_events
from cloudtrain.observe.progress import VARIABLE, Progress

STEPS = """
import os
from cloudtrain.observe import report_step
for step in range(1, 100_001):
    report_step(step)
if not os.fork():
    report_step(7)  # another process, with its own steps
    os._exit(0)
os.wait()
"""


def run(events: Path, **environ: str) -> list[int | None]:
    """The steps that a process with 100,000 of them reports."""
    environment = {"PATH": "", VARIABLE: str(events), "SM_CURRENT_HOST": "algo-1", **environ}
    library = str(Path(__file__).parents[3])
    subprocess.run([sys.executable, "-c", STEPS], env={"PYTHONPATH": library, **environment}, check=True)
    found = read_events(events)
    assert {event["source"] for event in found} <= {"algo-1"}
    assert {event["event"] for event in found} <= {"step"}
    return [event["step"] for event in found]


@pytest.mark.parametrize("environ", [{}, {"RANK": "0"}, {"CLOUDTRAIN_RANK": "0"}])
def test_a_hundred_thousand_steps_are_few_events(tmp_path: Path, environ: dict[str, str]) -> None:
    steps = run(tmp_path / "events", **environ)
    assert steps[0] == 1
    assert {7, 100_000} <= set(steps)
    assert len(steps) <= 5


@pytest.mark.parametrize("variable", ["RANK", "CLOUDTRAIN_RANK", "OMPI_COMM_WORLD_RANK"])
def test_other_ranks_report_nothing(tmp_path: Path, variable: str) -> None:
    assert run(tmp_path / "events", **{variable: "1"}) == []


def test_a_script_that_only_saves_reports_each_save_as_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "events"))
    steps = Progress()
    for number in (10, 20, 30):
        steps.saved(number)
        with steps.stalled(), steps.stalled():
            pass
    steps.report()
    steps.report()
    assert [event["step"] for event in read_events(tmp_path / "events")] == [10, 30]


def test_a_restore_is_an_event_and_its_failure_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "events"))
    steps = Progress()
    with steps.restoring():
        pass
    with steps.restoring() as restored:
        restored.append(12)
    with pytest.raises(ValueError), steps.restoring():
        raise ValueError
    assert [(event["event"], event["step"]) for event in read_events(tmp_path / "events")] == [
        ("restored", None),
        ("restored", 12),
    ]


def test_a_file_of_events_that_cannot_be_written_harms_no_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "/dev/full")
    steps = Progress()
    steps.step(1)
    with steps.restoring():
        pass
