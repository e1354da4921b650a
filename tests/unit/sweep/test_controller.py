"""The controller of a sweep when something happens that it does not expect."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest

from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.cost.so_far import Cost
from cloudtrain.errors import PlatformError, StorageError
from cloudtrain.platforms import JobDescription, Request
from cloudtrain.sweep import controller
from cloudtrain.sweep.journal import Replaced
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

    def was_interrupted(self, job_name: str) -> bool:
        return len(self.requests) == 1

    def withdraw(self, job_name: str) -> bool:
        is_held = self.was_interrupted(job_name)
        if is_held:
            del self._jobs[job_name]
        return is_held


class NeverQueued(Troubled):
    """A platform that finds out late that its first submissions never arrived.

    Args:
        lost: how many.
    """

    def __init__(self, lost: int) -> None:
        super().__init__()
        self.lost = lost
        self.looks: dict[int, int] = {}
        self.kills = 0
        """How many controllers are killed when they are about to remove the job."""

    def describe(self, job_name: str) -> JobDescription:
        found = super().describe(job_name)
        if len(self.requests) > self.lost:
            return found
        self.looks[len(self.requests)] = looks = self.looks.get(len(self.requests), 0) + 1
        why = FailureReport(FailureClass.PLATFORM, "the job was never submitted")
        late = replace(found, status=JobStatus.FAILED, started_at=None, failure=why)
        return late if looks > 2 else replace(found, status=JobStatus.PENDING, started_at=None)

    def was_interrupted(self, job_name: str) -> bool:
        return self.looks.get(len(self.requests), 0) > 2

    def withdraw(self, job_name: str) -> bool:
        is_lost = self.was_interrupted(job_name)
        if is_lost and self.kills:
            self.kills -= 1
            raise SystemExit("the controller was killed")
        if is_lost:
            del self._jobs[job_name]
        return is_lost


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


def test_a_trial_whose_job_was_never_submitted_is_submitted_again(
    sweep: StartedSweep, capsys: pytest.CaptureFixture[str]
) -> None:
    platform = NeverQueued(lost=2)
    platform.kills = 1
    with pytest.raises(SystemExit), sweep.journal.owned():
        controller.control(sweep.journal, platform)
    with sweep.journal.owned():
        controller.control(sweep.journal, platform)
    assert [trial.status for trial in sweep.trials.all] == ["Completed"] * 3
    assert [request.job_name[-1] for request in platform.requests] == [*"00012"]
    assert "the submission of opt-0000 was interrupted: it is submitted again" in capsys.readouterr().out


def test_a_controller_that_was_replaced_takes_no_job_back(sweep: StartedSweep) -> None:
    """It was paused while a job was being submitted, and the other controller submits that job now."""
    platform = Interrupted()
    with pytest.raises(SystemExit), sweep.journal.owned():
        controller.control(sweep.journal, platform)
    assert [trial.status for trial in sweep.trials.all] == ["Asked"]
    with pytest.raises(Replaced), sweep.journal.owned():
        (sweep.journal.folder / "owner").write_text('{"pid": 7, "host": "node9", "identity": "another"}')
        controller.control(sweep.journal, platform)
    assert [*platform._jobs] == ["opt-0000"]
    assert len(platform.requests) == 1


def test_a_trial_is_submitted_again_only_a_few_times(sweep: StartedSweep) -> None:
    platform = NeverQueued(lost=controller.MOST_WITHDRAWALS + 1)
    with sweep.journal.owned():
        controller.control(sweep.journal, platform)
    assert [trial.status for trial in sweep.trials.all] == ["Failed", "Completed", "Completed"]
    assert "never submitted" in sweep.trials.all[0].why
    assert [request.job_name[-1] for request in platform.requests] == [*"000012"]


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
