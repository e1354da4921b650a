"""The events of a sweep, its lock, and its trials."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from cloudtrain._system import files
from cloudtrain.cli import cli
from cloudtrain.cli.sweep import why_no_best
from cloudtrain.errors import JobNotFound, PlatformError, StorageError
from cloudtrain.sweep import StartedSweep, journal as journals
from cloudtrain.sweep.controller import control
from cloudtrain.sweep.journal import EVENTS, Journal, Replaced
from cloudtrain.sweep.plan import make_plan
from cloudtrain.sweep.started import sweep_names
from cloudtrain.sweep.trials import COMPLETED, Trials
from cloudtrain.testing import FakePlatform
from cloudtrain.watch.sweeps import look_at_sweep


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    (tmp_path / "opt").mkdir()
    found = Journal(tmp_path / "opt")
    found.append("created", plan=make_plan("opt", {"lr": "0.0..1.0"}, "loss").to_dict())
    return found


def ended(journal: Journal, trial: int, value: float | None, status: str = COMPLETED) -> None:
    more = {"why": "", "failure_class": None, "values": {}, "attributes": {}}
    journal.append("ended", trial=trial, status=status, value=value, **more)


def test_a_controller_that_ends_during_a_look_has_not_been_interrupted(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "sweeps_home", lambda: journal.folder.parent)
    looks = [
        lambda: StartedSweep(journal).status,
        lambda: StartedSweep(journal).describe()["status"],
        lambda: look_at_sweep("opt").status,
    ]
    for look in looks:
        journal.append("changed", plan=make_plan("opt", {"lr": "0.0..1.0"}, "loss").to_dict())
        assert StartedSweep(journal).trials.finished is None
        is_alive = Journal.is_alive

        def ends_now(found: Journal, *, wait: bool = True) -> bool:
            found.append("finished", why="completed")
            return is_alive(found, wait=wait)  # noqa: B023

        with monkeypatch.context() as patch:
            patch.setattr(Journal, "is_alive", ends_now)
            assert look() == "Completed"


@pytest.mark.parametrize("event", ["asked", "created", "ended"])
def test_damaged_events_are_an_error_that_hides_no_other_sweep(event: str) -> None:
    for name in ("bad", "good"):
        journal = Journal(journals.sweeps_home() / name)
        journal.folder.mkdir(parents=True)
        journal.append("created", plan=make_plan(name, {"lr": "0.0..1.0"}, "loss").to_dict())
        journal.append("asked", trial=0, parameters={"lr": 0.5})
    Journal.named("bad").append(event, trial=0 if event == "ended" else "x" if event == "created" else 1)
    with pytest.raises(StorageError, match=r"sweeps/bad: the events of the sweep are damaged"):
        StartedSweep.attach("bad").describe()
    listed = CliRunner().invoke(cli, ["sweep", "list"], prog_name="cloudtrain")
    assert (listed.exit_code, "good" in listed.stdout, "bad" in listed.stdout) == (0, True, False)
    assert "sweeps/bad: the events of the sweep are damaged" in listed.stderr


def test_other_folders_hide_no_sweep_and_are_not_completed() -> None:
    """A shell would run the text of a name that it completes."""
    for name in ("good", "empty", "a$(touch it)", "*"):
        (journals.sweeps_home() / name).mkdir(parents=True)
    plan = make_plan("good", {"lr": "0.0..1.0"}, "loss").to_dict()
    Journal(journals.sweeps_home() / "good").append("created", plan=plan)
    listed = CliRunner().invoke(cli, ["sweep", "list"], prog_name="cloudtrain")
    assert (listed.exit_code, "good" in listed.stdout) == (0, True)
    assert "there is no sweep empty" in listed.stderr
    assert {*sweep_names()} == {"good", "empty"}


def test_a_cut_line_does_not_count_and_spoils_none(journal: Journal) -> None:
    journal.append("asked", trial=0, parameters={"lr": 0.5})
    with open(journal.folder / EVENTS, "ab") as file:
        file.write(b'{"event": "asked", "trial": 1, "para')
    assert [event["event"] for event in journal.read()[0]] == ["created", "asked"]
    journal.append("asked", trial=1, parameters={"lr": 0.25})
    assert [trial.parameters for trial in Trials(journal.read()[0]).all] == [{"lr": 0.5}, {"lr": 0.25}]


def test_events_are_read_once(journal: Journal) -> None:
    first, position = journal.read()
    assert len(first) == 1
    assert journal.read(position) == ([], position)
    journal.append("submitted", trial=0)
    assert [event["event"] for event in journal.read(position)[0]] == ["submitted"]


def test_repeated_and_unknown_events_have_no_effect(journal: Journal) -> None:
    for _ in range(2):
        journal.append("asked", trial=0, parameters={"lr": 0.5})
        journal.append("news", trial=0)
        journal.append("submitted", trial=3)
    ended(journal, 0, 0.1)
    ended(journal, 0, 0.9)
    trials = Trials(journal.read()[0])
    assert [(trial.value, trial.status) for trial in trials.all] == [(0.1, COMPLETED)]


def test_the_best_is_the_first_of_equals_by_the_goal(journal: Journal) -> None:
    for number, value in enumerate([0.3, 0.1, 0.1, None]):
        journal.append("asked", trial=number, parameters={"lr": 0.5})
        ended(journal, number, value, COMPLETED if value else "No value")
    trials = Trials(journal.read()[0])
    assert trials.best is trials.all[1]
    assert trials.repeated == 3


@pytest.mark.parametrize(
    "status, advice",
    [("No value", "report it with cloudtrain.log"), ("Failed", "cloudtrain describe opt-0000 shows why")],
)
def test_a_sweep_without_a_value_has_a_hint(journal: Journal, status: str, advice: str) -> None:
    journal.append("asked", trial=0, parameters={"lr": 0.5})
    ended(journal, 0, None, status)
    assert advice in why_no_best(Trials(journal.read()[0]))


def test_a_second_controller_is_refused(journal: Journal) -> None:
    with journal.owned():
        assert journal.is_alive()
        with (
            pytest.raises(PlatformError, match=f"sweep opt has a controller: process {os.getpid()} on"),
            Journal(journal.folder).owned(),
        ):
            pass
    assert not journal.is_alive()
    with journal.owned():
        pass


def test_the_controller_of_a_finished_sweep_is_waited_for(journal: Journal) -> None:
    """A user who sees the end of a sweep may continue it immediately, though its controller has not quite ended."""
    hold = (
        "import sys, pathlib; from cloudtrain.sweep.journal import Journal\n"
        "with Journal(pathlib.Path(sys.argv[1])).owned() as _, sys.stdin: print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, journal.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin and other.stdout and other.stdout.readline() == "held\n"
        with pytest.raises(PlatformError, match=f"process {other.pid}"), journal.owned():
            pass
        journal.append("finished", why="completed")
        threading.Timer(0.3, other.stdin.close).start()
        with journal.owned():
            pass


def test_without_locks_the_record_of_the_owner_decides(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_locks(*_arguments: object, **_options: object) -> bool:
        raise OSError(38, "no locks")

    monkeypatch.setattr(journals, "lock", no_locks)
    hold = (
        "import sys, pathlib; from cloudtrain.sweep import journal as j\n"
        "def no_locks(*a, **o): raise OSError(38, 'no locks')\n"
        "j.lock = no_locks\n"
        "with j.Journal(pathlib.Path(sys.argv[1])).owned(): print('held', flush=True); sys.stdin.read()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, journal.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout and other.stdout.readline() == "held\n"
        assert journal.is_alive()
        with pytest.raises(PlatformError, match=f"process {other.pid}"), journal.owned():
            pass
        other.kill()
    assert not journal.is_alive()
    with journal.owned():
        pass


def test_a_look_at_a_sweep_does_not_keep_its_controller_out(journal: Journal) -> None:
    """`is_alive` locks the file for a moment."""
    with journal.owned():
        pass
    descriptor = os.open(journal.folder / "lock", os.O_RDWR)
    assert files.lock(descriptor, wait=False, shared=True)
    threading.Timer(0.3, os.close, [descriptor]).start()
    with journal.owned():
        assert journal.is_alive()


def test_the_folder_of_another_user_is_refused(journal: Journal) -> None:
    journal.folder.parent.rename(journals.sweeps_home())
    folder = Journal.named("opt").folder
    os.chown(folder / EVENTS, 65534, 65534)
    with pytest.raises(PlatformError, match="belongs to another user"):
        Journal.named("opt")


def test_a_name_that_is_a_path_is_refused() -> None:
    for name in ("../x", "missing", ""):
        with pytest.raises(JobNotFound):
            Journal.named(name)


ELSEWHERE = '{"pid": 7, "host": "node9", "identity": "another"}'


def test_an_owner_on_another_machine_keeps_others_out_while_it_beats(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock is not seen here: on many file systems of clusters, a lock holds on one machine."""
    owner, ended = journal.folder / "owner", threading.Event()
    (journal.folder / "lock").touch()
    owner.write_text(ELSEWHERE)

    def beat() -> None:
        for second in itertools.count(1):
            os.utime(owner, (second, second))
            if ended.wait(0.05):
                return

    beats = threading.Thread(target=beat)
    beats.start()
    with pytest.raises(PlatformError, match="process 7 on node9"), journal.owned():
        pass
    ended.set()
    beats.join()
    os.utime(owner)
    assert journal.is_alive()
    os.utime(owner, (1, 1))
    assert not journal.is_alive()
    monkeypatch.setattr(journals, "BEAT_SECONDS", 0.1)
    with journal.owned():
        assert journal.is_alive()


def test_an_owner_whose_clock_is_wrong_lives_while_it_beats(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock is an hour behind: its beats are compared with one another."""
    owner, hour_ago = journal.folder / "owner", time.time() - 3600
    (journal.folder / "lock").touch()
    owner.write_text(ELSEWHERE)
    os.utime(owner, (hour_ago, hour_ago))
    beats = threading.Timer(0.2, os.utime, [owner, (hour_ago + 5, hour_ago + 5)])
    monkeypatch.setattr(journals, "BEAT_SECONDS", 20.0)
    beats.start()
    assert journal.is_alive(), "it was watched until it beat"
    beats.join()
    assert Journal(journal.folder).is_alive(), "no beat is due yet"
    monkeypatch.setattr(journals, "SILENT_SECONDS", 0.0)
    assert not journal.is_alive(), "it has ended"
    os.utime(owner, (hour_ago + 10, hour_ago + 10))
    monkeypatch.setattr(journals, "SILENT_SECONDS", 60.0)
    assert journal.is_alive(), "it has not: it was only paused"


def test_a_silent_owner_is_watched_once(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, hour_ago = journal.folder / "owner", time.time() - 3600
    (journal.folder / "lock").touch()
    owner.write_text(ELSEWHERE)
    os.utime(owner, (hour_ago, hour_ago))
    monkeypatch.setattr(journals, "BEAT_SECONDS", 0.05)
    assert not journal.is_alive()
    naps: list[float] = []
    monkeypatch.setattr(journals.time, "sleep", naps.append)
    assert not Journal(journal.folder).is_alive()
    assert naps == []


def test_a_view_that_looks_again_does_not_wait_for_a_silent_owner(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, hour_ago, naps = time.monotonic(), time.time() - 3600, list[float]()
    (journal.folder / "lock").touch()
    (journal.folder / "owner").write_text(ELSEWHERE)
    os.utime(journal.folder / "owner", (hour_ago, hour_ago))
    monkeypatch.setattr(journals.time, "sleep", naps.append)
    assert journal.is_alive(wait=False), "that is not known yet"
    monkeypatch.setattr(journals.time, "monotonic", lambda: now + 100)
    assert not journal.is_alive(wait=False)
    assert naps == []


def test_silent_owners_that_were_seen_together_are_watched_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, hour_ago = time.monotonic(), time.time() - 3600
    found = [Journal(journals.sweeps_home() / name) for name in ("silent", "beats", "silent-too")]
    for each in found:
        each.folder.mkdir(parents=True)
        (each.folder / EVENTS).touch()
        (each.folder / "lock").touch()
        (each.folder / "owner").write_text(ELSEWHERE)
        os.utime(each.folder / "owner", (hour_ago, hour_ago))
    naps: list[float] = []
    monkeypatch.setattr(journals.time, "sleep", naps.append)
    journals.see_owners([*(each.name for each in found), "none"])
    os.utime(found[1].folder / "owner", (hour_ago + 5, hour_ago + 5))
    monkeypatch.setattr(journals.time, "monotonic", lambda: now + 100)
    assert [each.is_alive() for each in found] == [False, True, False]
    assert naps == []


def test_who_watches_a_silent_owner_holds_no_lock(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that starts meanwhile would be refused."""
    owner, hour_ago = journal.folder / "owner", time.time() - 3600
    (journal.folder / "lock").touch()
    owner.write_text(ELSEWHERE)
    os.utime(owner, (hour_ago, hour_ago))
    free: list[bool] = []

    def nap(_seconds: float) -> None:
        with open(journal.folder / "lock", "r+b") as file:
            free.append(files.lock(file.fileno(), wait=False))
        os.utime(owner, (hour_ago + 5, hour_ago + 5))

    monkeypatch.setattr(journals, "BEAT_SECONDS", 60.0)
    monkeypatch.setattr(journals.time, "sleep", nap)
    assert journal.is_alive()
    assert free == [True]


def test_an_owner_shows_that_it_lives_and_ends_when_it_was_replaced(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journals, "BEAT_SECONDS", 0.05)
    owner = journal.folder / "owner"
    with journal.owned():
        os.utime(owner, (1, 1))
        while owner.stat().st_mtime == 1:
            time.sleep(0.01)
        journal.append("submitted", trial=0)
        owner.write_text(ELSEWHERE)
        with pytest.raises(Replaced, match="another controller now: process 7 on node9"):
            control(journal, FakePlatform())
    assert owner.read_text() == ELSEWHERE
    assert [event["event"] for event in journal.read()[0]] == ["created", "submitted"]


def test_an_owner_whose_machine_gets_another_name_is_not_replaced(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a laptop does in another network."""
    with journal.owned():
        monkeypatch.setattr("socket.gethostname", lambda: "another-name")
        journal.append("submitted", trial=0)
    assert not (journal.folder / "owner").exists()


def test_a_refused_controller_leaves_the_record_of_the_other(journal: Journal) -> None:
    with journal.owned():
        with pytest.raises(PlatformError, match="has a controller"), Journal(journal.folder).owned():
            pass
        assert journal.owner()
