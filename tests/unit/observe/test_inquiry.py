"""The runtime asks a rank that hangs which collectives it is in."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from cloudtrain.observe import heartbeat, inquiry


@pytest.fixture
def beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "rank-0.heartbeat")
    heartbeat.create(path)
    monkeypatch.setenv(heartbeat.VARIABLE, path)
    return path


def answered(beat: str) -> str:
    deadline = time.monotonic() + 60
    while not inquiry.answer(beat) and time.monotonic() < deadline:
        time.sleep(0.01)
    return inquiry.answer(beat)


def test_every_question_gets_a_new_answer(beat: str) -> None:
    asked: list[str] = []

    def describe() -> str:
        asked.append("in a collective")
        return f"{asked[-1]} {len(asked)}"

    inquiry.answer_with(describe)
    inquiry.answer_with(describe)  # init after shutdown
    assert inquiry.answer(beat) == ""
    assert inquiry.ask(beat)
    assert answered(beat) == "in a collective 1"
    assert inquiry.ask(beat)
    assert answered(beat) == "in a collective 2"


def test_an_error_is_an_answer(beat: str) -> None:
    inquiry.answer_with(lambda: [].pop())
    assert inquiry.ask(beat)
    assert answered(beat) == "IndexError: pop from empty list"


def test_a_rank_without_collectives_is_not_queried(beat: str) -> None:
    assert not inquiry.ask(beat)
    assert inquiry.answer(beat) == ""


def test_files_of_a_script_do_not_block_the_runtime(beat: str) -> None:
    Path(f"{beat}.asked").write_text("not a pipe")
    os.mkfifo(f"{beat}.answer")
    asked: list[bool] = []
    runtime = threading.Thread(target=lambda: asked.append(inquiry.ask(beat)), daemon=True)
    runtime.start()
    runtime.join(60)
    assert asked == [False]
    assert Path(f"{beat}.asked").read_text() == "not a pipe"
    os.mkfifo(f"{beat}.answer")
    assert inquiry.answer(beat) == ""


def test_outside_a_job_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(heartbeat.VARIABLE, raising=False)
    before = threading.active_count()
    inquiry.answer_with(lambda: "")
    assert threading.active_count() == before
