"""A live card: when it is updated, and with what."""

from __future__ import annotations

import builtins
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.displaypub import CapturingDisplayPublisher
from IPython.core.interactiveshell import InteractiveShell

from cloudtrain._display.live import LiveCard, live_card, mime_bundle
from cloudtrain.contract import JobStatus
from cloudtrain.errors import PlatformError
from cloudtrain.job import Job
from cloudtrain.platforms import JobDescription, Request
from cloudtrain.testing import FakePlatform


class _Shell:
    """The part of a kernel's shell that a card uses."""

    kernel = object()
    execution_count = 1

    def __init__(self) -> None:
        self.display_pub = CapturingDisplayPublisher()

    @property
    def states(self) -> list[str]:
        """The state in each update of a card."""
        pages: list[Any] = self.display_pub.outputs
        return [page["data"]["text/plain"].splitlines()[1].split()[1] for page in pages]


def _platform(status: JobStatus) -> FakePlatform:
    platform = FakePlatform(status)
    platform.submit(Request("fake", "train-1", {}))
    return platform


def test_a_card_is_updated_when_something_has_changed() -> None:
    shell, platform = _Shell(), _platform(JobStatus.RUNNING)
    card = LiveCard(shell, platform, "train-1")
    for _ in range(3):
        card.show(platform.describe("train-1"))
    assert shell.states == ["Running"]
    platform.stop("train-1")
    card.show(platform.describe("train-1"))
    card.finish()
    assert shell.states == ["Running", "Stopped"]
    first, second = shell.display_pub.outputs
    assert (first["update"], second["update"]) == (False, True)
    assert first["transient"] == second["transient"]


def test_a_late_update_does_not_replace_the_last_state() -> None:
    shell, platform = _Shell(), _platform(JobStatus.RUNNING)
    card = LiveCard(shell, platform, "train-1")
    running = platform.describe("train-1")
    card.show(running)
    platform.stop("train-1")
    card.finish()
    card.show(running)
    assert shell.states == ["Running", "Stopped"]


def test_a_thread_updates_the_card_meanwhile() -> None:
    shell, platform = _Shell(), _platform(JobStatus.RUNNING)
    card = LiveCard(shell, platform, "train-1")
    shown = threading.Event()
    publish = shell.display_pub.publish

    def publish_and_say(*args: Any, **kwargs: Any) -> None:
        publish(*args, **kwargs)
        shown.set()

    shell.display_pub.publish = publish_and_say
    with card.updating():
        assert shown.wait(60)
    assert shell.states == ["Running"]


def test_a_card_that_is_no_longer_live_shows_how_to_attach() -> None:
    shell, platform = _Shell(), _platform(JobStatus.RUNNING)
    card = LiveCard(shell, platform, "train-1")
    card.finish()
    assert (
        "cloudtrain.Job.attach('train-1').wait(logs=True)"
        in shell.display_pub.outputs[0]["data"]["text/plain"]
    )


class _Unreachable(FakePlatform):
    """Answers a few times, then no more."""

    answers = 1

    def describe(self, job_name: str) -> JobDescription:
        self.answers -= 1
        if self.answers < 0:
            raise PlatformError("the platform does not answer")
        return super().describe(job_name)


def test_a_platform_that_does_not_answer() -> None:
    shell, platform = _Shell(), _Unreachable(JobStatus.RUNNING)
    platform.submit(Request("fake", "train-1", {}))
    card = LiveCard(shell, platform, "train-1")
    card.show(platform.describe("train-1"))
    with card.updating():
        time.sleep(0.1)
    assert platform.answers > -50  # it is asked at the pace of the card
    card.finish()
    assert (
        "cloudtrain.Job.attach('train-1').wait(logs=True)"
        in shell.display_pub.outputs[-1]["data"]["text/plain"]
    )
    LiveCard(shell, platform, "train-1").finish()  # nothing is known, and nothing shown
    assert shell.states == ["Running", "Running"]


@pytest.fixture
def terminal() -> Iterator[InteractiveShell]:
    """IPython, as on a terminal. It adds names to the builtins of this process."""
    before = dict(vars(builtins))
    yield InteractiveShell.instance()
    InteractiveShell.clear_instance()
    for name in vars(builtins).keys() - before.keys():
        delattr(builtins, name)


def test_ipython_on_a_terminal_shows_one_line(terminal: InteractiveShell) -> None:
    platform = _platform(JobStatus.RUNNING)
    formats, _ = terminal.display_formatter.format(Job("train-1", platform))
    assert formats == {"text/plain": "<Job train-1 on fake>"}
    with live_card(platform, "train-1") as card:
        assert card is None


def test_without_ipython_a_bundle_is_complete_and_ipython_is_not_imported() -> None:
    assert set(mime_bundle(_platform(JobStatus.RUNNING), "train-1")) == {"text/html", "text/plain"}
    code = """
import sys
from cloudtrain.job import Job
from cloudtrain.testing import FakePlatform
from cloudtrain.platforms import JobDescription, Request
platform = FakePlatform()
platform.submit(Request("fake", "train-1", {}))
Job("train-1", platform).wait(logs=True)
assert "IPython" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=240)
