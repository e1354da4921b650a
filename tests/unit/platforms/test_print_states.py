"""Each state of a job is printed once, the last one too."""

from __future__ import annotations

import threading

import pytest

from cloudtrain.errors import PlatformError
from cloudtrain.platforms import JobState, print_states
from cloudtrain.testing import FakePlatform


class Stateful(FakePlatform):
    """Knows states: those that a test puts there."""

    def __init__(self) -> None:
        super().__init__()
        self.known: list[JobState] = []
        self.asked = threading.Semaphore(0)

    def states(self, job_name: str) -> list[JobState]:
        self.asked.release()
        return list(self.known)

    def was_asked(self, times: int) -> None:
        for _ in range(times):
            assert self.asked.acquire(timeout=120)


def _words(line: str) -> str:
    return line.partition(" ")[2]


def test_each_state_is_printed_once() -> None:
    platform, lines = Stateful(), []
    with print_states(platform, "a-job", lines.append, poll=0.01):
        platform.known = [JobState(0, "Starting", "Launching"), JobState(5, "Training")]
        platform.was_asked(5)
        platform.known[0] = JobState(0, "Starting", "Preparing")
        platform.was_asked(3)
        platform.known.append(JobState(9, "Completed", "done"))
    expected = ["Starting: Launching", "Training", "Starting: Preparing", "Completed: done"]
    assert [_words(line) for line in lines] == expected


def test_an_interrupt_is_not_held_up() -> None:
    platform, lines = Stateful(), []
    with pytest.raises(KeyboardInterrupt), print_states(platform, "a-job", lines.append, poll=0.01):
        raise KeyboardInterrupt


def test_a_platform_that_fails_is_left_to_the_others() -> None:
    class Broken(Stateful):
        def states(self, job_name: str) -> list[JobState]:
            raise PlatformError("gone")

    lines: list[str] = []
    with print_states(Broken(), "a-job", lines.append):
        pass
    assert lines == []


def test_a_platform_without_states_prints_nothing() -> None:
    before = threading.active_count()
    with print_states(FakePlatform(), "a-job", print):
        assert threading.active_count() == before
