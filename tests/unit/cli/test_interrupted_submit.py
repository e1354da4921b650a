"""Ctrl-C before the job exists."""

from __future__ import annotations

import configparser
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import click
import pytest
from click.testing import CliRunner

from cloudtrain.cli import cli
from cloudtrain.cli.submit import command


class _Interrupting(ModuleType):
    """Ctrl-C arrives while it is imported."""

    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def _interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ("prepare", "Interrupted: nothing was submitted."),
        ("Submission.upload", "Interrupted: nothing was submitted."),
        (
            "Submission.start",
            "Interrupted: the job cut may have been submitted. See: cloudtrain describe cut",
        ),
    ],
)
def test_an_interrupt_reports_whether_a_job_was_submitted(
    step: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.setattr(f"cloudtrain.submission.{step}", _interrupt)
    monkeypatch.setattr("cloudtrain.platforms.local.platform.LocalPlatform.warm_up", lambda self: None)
    result = CliRunner().invoke(command, [str(tmp_path / "train.py"), "--name", "cut"])
    assert result.exit_code == 130
    assert message in result.stderr


def test_an_interrupt_before_the_output_shows_how_to_attach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("")
    monkeypatch.setattr("cloudtrain.submission.Submission.start", lambda self: SimpleNamespace(name="cut"))
    monkeypatch.setattr("cloudtrain.platforms.local.platform.LocalPlatform.warm_up", lambda self: None)
    monkeypatch.setitem(sys.modules, "cloudtrain.cli._view", _Interrupting("cloudtrain.cli._view"))
    result = CliRunner().invoke(command, [str(tmp_path / "train.py"), "--name", "cut"])
    assert result.exit_code == 130
    assert "the job cut continues to run. Attach to it with: cloudtrain wait cut" in result.stderr


@pytest.mark.parametrize("arguments", [["describe", "job"], ["wait", "job"], ["download", "job"], ["clean"]])
def test_every_command_ends_as_after_an_interrupt(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = cli.get_command(click.Context(cli), arguments[0])
    monkeypatch.setattr(command, "callback", _interrupt)
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stderr) == (130, "\nInterrupted.\n")


@pytest.mark.parametrize("loaded", ["click", "cloudtrain.cli.list"])
def test_an_interrupt_during_the_start_shows_no_traceback(loaded: str, tmp_path: Path) -> None:
    """Ctrl-C arrives while the module ``loaded`` is imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupt:\n"
        "    def find_spec(name, path=None, target=None):\n"
        f"        if name == {loaded!r}:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt)\n"
    )
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[3] / "setup.cfg")
    scripts = setup["options.entry_points"]["console_scripts"]
    module, _, function = scripts.partition("=")[2].strip().partition(":")
    program = f"import sys; from {module} import {function}; sys.exit({function}())"  # as pip writes it
    done = subprocess.run(
        [sys.executable, "-c", program, "list"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "\nInterrupted.\n")


IGNORES = """
import os, sys, time, weakref
from cloudtrain.cli._errors import cleaning_up

class Collected: pass

def send(_):
    os.kill(os.getpid(), int(sys.argv[1]))
    time.sleep(60)

with cleaning_up():
    found = Collected()
    reference = weakref.ref(found, send)
    del found  # Python ignores what the callback raises, as in the middle of an import
    time.sleep(600)
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_where_python_ignores_exceptions_ends_the_command(number: signal.Signals) -> None:
    done = subprocess.run([sys.executable, "-c", IGNORES, str(int(number))], capture_output=True, timeout=300)
    assert done.returncode == -number, done.stderr.decode()
