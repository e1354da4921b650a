"""Text of a job on a terminal: control characters appear escaped, and only a line of a log keeps its colours."""

from __future__ import annotations

import io
import json
import traceback
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from cloudtrain import Estimator
from cloudtrain.cli._errors import reported
from cloudtrain.cli._job_table import show_jobs
from cloudtrain.cli._output import echo_json
from cloudtrain.cli._view import print_line, show_job
from cloudtrain.cli.doctor import _show as show_findings
from cloudtrain.cli.jobs import _show_metrics as show_metrics
from cloudtrain.cli.notify import _show as show_notifications
from cloudtrain.cli.stop import command as stop
from cloudtrain.contract import FailureClass, FailureReport, JobStatus
from cloudtrain.contract.text import escape_except_colours, escape_line, escape_text
from cloudtrain.errors import PlatformError, TrainingFailed
from cloudtrain.job import Job
from cloudtrain.observe.metric_series import Point
from cloudtrain.platforms import CheckStatus, Finding, HostState, JobDescription, JobState
from cloudtrain.platforms.waiting import state_line
from cloudtrain.testing import FakePlatform
from cloudtrain.watch.notifications import Result

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2028\x08\x7f"
SHOWN = r"\x1b]0;owned\x07\x1b[2J\x9b31m\u202egnp.exe\u2028\x08\x7f"


def is_safe(text: str) -> bool:
    return not any(character in text for character in "\x1b\x07\x9b\u202e\u2028\x08\x7f\r")


def test_characters_that_a_terminal_carries_out_are_escaped() -> None:
    assert escape_line(EVIL) == SHOWN
    assert escape_line("a\nb\tc\rd") == r"a\nb\tc\rd"
    assert escape_text("a\nb\tc\rd") == "a\nb\tc\\rd"
    assert escape_line("日本語\u3000été 🚀 👩‍💻 \xa0") == "日本語\u3000été 🚀 👩‍💻 \xa0"
    assert escape_line("\ud800") == r"\ud800"


def test_a_line_of_a_log_keeps_its_colours_only() -> None:
    line = f"\x1b[1;31mred\x1b[0m {EVIL}"
    assert escape_except_colours(line) == f"\x1b[1;31mred\x1b[0m {SHOWN}"
    screen = io.StringIO()
    print_line(f"[rank 0] {line}", console=Console(file=screen, force_terminal=True, color_system="standard"))
    text = screen.getvalue()
    assert "red" in text
    assert SHOWN in text
    assert "\x1b]" not in text
    assert "\x1b[2J" not in text


def test_a_failure_report_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    failure = FailureReport(
        FailureClass.USER_ERROR, f"m {EVIL}", f"h {EVIL}", rank=1, host=f"algo{EVIL}", exception_type=f"Error{EVIL}",
        traceback=f"t {EVIL}\nsecond line", log_tail=(EVIL,),
    )  # fmt: skip
    description = JobDescription(
        f"job{EVIL}", "fake", JobStatus.FAILED, 1.8e9, failure=failure, reason=EVIL, warnings=[EVIL],
        phases={EVIL: 1.0}, started_at=1.8e9, metrics={EVIL: 1.0}, model_data=EVIL, details={EVIL: EVIL},
        hosts=[HostState(EVIL, EVIL, PlatformError(EVIL))],
    )  # fmt: skip
    show_job(Job("job", FakePlatform()), description)
    show_jobs([(description.name, "fake", description), (EVIL, EVIL, PlatformError(EVIL))])
    shown = capsys.readouterr()
    assert is_safe(shown.out)
    assert is_safe(shown.err)
    assert "second line" in shown.out.splitlines()


def test_states_findings_and_stops_are_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_safe(state_line(JobState(1.8e9, "Pending", EVIL)))
    show_findings([("cluster", Finding(CheckStatus.FAILED, EVIL, EVIL))])
    assert SHOWN in capsys.readouterr().out.replace("\n", "")
    platform = FakePlatform(failure=FailureReport(FailureClass.USER_ERROR, EVIL))
    (tmp_path / "train.py").touch()
    Estimator(str(tmp_path / "train.py"), platform=platform).fit(job_name="a-job", wait=False)
    monkeypatch.setattr("cloudtrain.job.get_platform", lambda name: platform)
    assert SHOWN in CliRunner().invoke(stop, ["a-job", "--platform", "fake"]).stderr


def test_json_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    """Its standard escapes only ASCII: a terminal takes U+009B for the start of a control sequence."""
    echo_json({"reason": EVIL})
    print_line(f"[rank 0] {EVIL}", as_json=True)
    described, line = capsys.readouterr().out.split("}\n", 1)
    assert is_safe(described + line)
    assert json.loads(described + "}")["reason"] == json.loads(line)["line"] == EVIL


def test_an_error_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), reported():
        raise PlatformError(f"{EVIL} failed", hint="Do this.")
    assert is_safe(capsys.readouterr().err)


def test_prints_of_the_python_api_are_escaped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "train.py").touch()
    platform = FakePlatform(logs=[f"line {EVIL}", "\x1b[1mbold\x1b[0m"])
    estimator = Estimator(str(tmp_path / "train.py"), platform=platform)
    job = estimator.fit(job_name="a-job")
    estimator.logs()
    job.wait(logs=True)
    shown = capsys.readouterr().out
    assert shown.count(f"line {SHOWN}") == 3
    assert is_safe(shown.replace("\x1b[1mbold\x1b[0m", ""))


def test_a_traceback_is_escaped() -> None:
    failure = FailureReport(FailureClass.USER_ERROR, f"m {EVIL}", f"h {EVIL}", host=f"algo{EVIL}")
    for error in (TrainingFailed("a-job", failure), PlatformError(EVIL, hint=EVIL)):
        assert is_safe("".join(traceback.format_exception(error)))
        assert SHOWN in str(error)


def test_markup_in_names_is_not_interpreted(capsys: pytest.CaptureFixture[str]) -> None:
    show_jobs([("[red]name[/blue]", "fake", PlatformError("[/]"))])
    assert "[red]name[/blue]" in capsys.readouterr().out


def test_the_long_name_of_one_metric_makes_no_other_row_long(capsys: pytest.CaptureFixture[str]) -> None:
    names = [f"m{number}" for number in range(1000)]
    show_metrics("a-job", {name: [Point(0.0, 1.0)] for name in [*names, "n" * 10_000]})
    assert len(capsys.readouterr().out) < 200_000


def test_the_events_of_notifications_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    show_notifications([Result("\x1b[2Jfailed", "webhook", "")])
    assert capsys.readouterr().out == "\\x1b[2Jfailed (webhook): sent\n"
