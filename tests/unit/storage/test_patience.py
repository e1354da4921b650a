"""How long to wait for a store that is away, and what is logged while waiting."""

from __future__ import annotations

import threading
import time

import pytest

from cloudtrain.storage import retry_policy as patience
from cloudtrain.storage.retry_policy import ATTEMPTS, Patience, current, using


def attempts(waiting: Patience) -> int:
    """How often a request that always fails is sent."""
    outage, count = waiting.outage("s3://data/key"), 1
    while outage.wait("refused"):
        count += 1
    return count


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience.PAUSE_VARIABLE, "0.01")


def test_without_patience_a_request_is_sent_three_times() -> None:
    assert attempts(Patience(0)) == ATTEMPTS


def test_pauses_grow_until_the_limit() -> None:
    began = time.monotonic()
    assert 5 <= attempts(Patience(0.5)) <= 12
    assert time.monotonic() - began >= 0.5


@pytest.mark.parametrize(
    ("text", "seconds"), [("7.5", 7.5), ("0", 0.0), ("", 300.0), ("long", 300.0), ("-1", 300.0)]
)
def test_the_limit_is_read_from_the_environment(
    text: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(patience.LIMIT_VARIABLE, text)
    assert Patience().seconds == seconds
    assert Patience(1.0).seconds == 1.0


def test_a_deadline_replaces_the_limit() -> None:
    end = time.monotonic() + 0.4
    assert attempts(Patience(0, until=lambda: end)) > ATTEMPTS
    assert time.monotonic() >= end
    assert attempts(Patience(60, until=lambda: end)) == 1


@pytest.mark.parametrize("how", ["give_up", "interrupt"])
def test_a_pause_ends_immediately(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(patience.PAUSE_VARIABLE, "60")
    waiting = Patience(60)
    threading.Timer(0.1, getattr(waiting, how)).start()
    assert attempts(waiting) == 1
    monkeypatch.setenv(patience.PAUSE_VARIABLE, "0.01")
    waiting.limit = 0
    assert attempts(waiting) == (1 if how == "give_up" else ATTEMPTS)


def test_a_warning_a_minute_and_a_message_when_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patience, "QUIET_SECONDS", 0.1)
    monkeypatch.setattr(patience, "WARNING_SECONDS", 0.5)
    said: list[str] = []
    waiting = Patience(0.4, warn=said.append)
    threads = [threading.Thread(target=attempts, args=(waiting,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == ["s3://data/key: refused; trying again, for 0 s so far"]
    assert waiting.away > 0.3
    attempts(waiting)
    assert len(said) == 2
    waiting.answered()
    waiting.answered()
    assert said[2:] == ["the storage answers again after 1 s"]
    assert waiting.away == 0.0


def test_a_short_outage_is_not_mentioned() -> None:
    said: list[str] = []
    waiting = Patience(0.2, warn=said.append)
    attempts(waiting)
    waiting.answered()
    assert said == []


def test_a_thread_has_its_own_patience() -> None:
    mine = Patience(1)
    found: list[Patience] = []
    with using(mine), using(None):
        thread = threading.Thread(target=lambda: found.append(current()))
        thread.start()
        thread.join()
        assert current() is mine
    assert found == [current()] == [patience.default]
