"""The controller of a sweep when something happens that it does not expect."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudtrain.contract import JobStatus
from cloudtrain.cost.so_far import Cost
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.platforms import JobDescription, Request
from cloudtrain.sweep import controller
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.start import create
from cloudtrain.sweep.started import StartedSweep
from cloudtrain.testing import FakePlatform


class Troubled(FakePlatform):
    """A platform whose first answers are errors that are not cloudtrain's."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = [*errors]

    def describe(self, job_name: str) -> JobDescription:
        if self.errors:
            raise self.errors.pop(0)
        return replace(super().describe(job_name), metrics={"loss": 0.5})


class SilentAboutCost(Troubled):
    """A platform that does not say what its first job cost before it has said that of the others."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[str] = set()

    def cost(self, description: JobDescription) -> Cost | None:
        if description.name.endswith("0000") and len(self.known) < 2:
            raise PlatformError("the platform does not answer")
        self.known.add(description.name)
        return Cost(2.0)


class Interrupted(Troubled):
    """A platform on which the end of its client cuts the first submission off: it leaves a job that never runs."""

    def submit(self, request: Request) -> None:
        super().submit(request)
        if len(self.requests) == 1:
            raise SystemExit("the client was killed")

    def describe(self, job_name: str) -> JobDescription:
        found = super().describe(job_name)
        return replace(found, status=JobStatus.PENDING) if len(self.requests) == 1 else found

    def withdraw(self, job_name: str) -> bool:
        is_held = len(self.requests) == 1
        if is_held:
            del self._jobs[job_name]
        return is_held


@pytest.fixture
def sweep(tmp_path: Path) -> StartedSweep:
    (tmp_path / "train.py").write_text("print('loss')")
    fields = {"entry_point": str(tmp_path / "train.py"), "platform": "local"}
    return create(fields, make_plan("opt", {"lr": "0.0..1.0"}, "loss", trials=3, sampler="random"))


def test_unexpected_errors_do_not_end_a_sweep(
    sweep: StartedSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    (sweep.journal.folder / ".hand-on-x").mkdir()  # of a controller that was killed
    platform = Troubled(json.JSONDecodeError("Expecting value", "<html>", 0), full, KeyError("status"))
    with sweep.journal.owned():
        controller.control(sweep.journal, platform)
    assert sweep.status == "Completed"
    assert not [*sweep.journal.folder.glob(".hand-on-*")]
    assert [request.job_name for request in platform.requests] == ["opt-0000", "opt-0001", "opt-0002"]
    log = capsys.readouterr().out
    assert "Expecting value" in log
    assert "No space left on device" in log
    assert "KeyError: 'status'" in log


def test_a_trial_whose_submission_was_interrupted_is_submitted_again(sweep: StartedSweep) -> None:
    platform = Interrupted()
    with pytest.raises(SystemExit), sweep.journal.owned():
        controller.control(sweep.journal, platform)
    with sweep.journal.owned():
        controller.control(sweep.journal, platform)
    assert sweep.status == "Completed"
    assert [request.job_name[-1] for request in platform.requests] == [*"0012"]


def test_trials_do_not_wait_for_the_cost_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "train.py").write_text("print('loss')")
    fields = {"entry_point": str(tmp_path / "train.py"), "platform": "local"}
    plan = make_plan("opt", {"lr": "0.0..1.0"}, "loss", trials=3, parallel=3, sampler="random")
    sweep = create(fields, plan)
    with sweep.journal.owned():
        controller.control(sweep.journal, SilentAboutCost())
    assert sweep.status == "Completed"
    assert sweep.describe()["cost"] == 6.0
    assert "does not answer" not in capsys.readouterr().out


def test_a_defect_ends_a_sweep_and_names_the_log(
    sweep: StartedSweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "MOST_DEFECTS", 3)
    with sweep.journal.owned():
        controller.control(sweep.journal, Troubled(*[ValueError("no\nJSON")] * 9))
    assert sweep.status == "Failed"
    log = sweep.journal.folder / "controller.log"
    assert sweep.describe()["why"] == f"a defect of cloudtrain ended it: ValueError: no JSON. See {log}"


def test_damaged_events_end_the_controller(sweep: StartedSweep) -> None:
    events = sweep.journal.folder / "events.jsonl"
    events.write_text(events.read_text().replace('"space"', '"spaces"'))
    with sweep.journal.owned(), pytest.raises(StorageError, match="the events of the sweep are damaged"):
        controller.control(sweep.journal, FakePlatform())
    assert not sweep.journal.is_alive()
