"""The runtime asks a rank that hangs which collectives it is in."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from cloudtrain.observe import heartbeat, inquiry
from cloudtrain.observe.inquiry import Answer, InGroup


@pytest.fixture
def beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    path = str(tmp_path / "rank-0.heartbeat")
    heartbeat.create(path)
    monkeypatch.setenv(heartbeat.VARIABLE, path)
    return path


def answered(beat: str) -> Answer | None:
    deadline = time.monotonic() + 60
    while not inquiry.read_answer(beat) and time.monotonic() < deadline:
        time.sleep(0.01)
    return inquiry.read_answer(beat)


def test_every_question_gets_a_new_answer(beat: str) -> None:
    asked: list[str] = []

    def describe() -> Answer:
        asked.append("in a collective")
        return Answer(f"{asked[-1]} {len(asked)}")

    groups = {"gloo 0 default_pg": InGroup(8, 7, "gloo:all_reduce")}
    inquiry.answer_with(describe)
    inquiry.answer_with(describe)  # init after shutdown
    inquiry.answer_with(lambda: Answer("waits", groups))
    assert inquiry.read_answer(beat) is None
    assert inquiry.ask(beat)
    assert answered(beat) == Answer("in a collective 1\nwaits", groups)
    assert inquiry.ask(beat)
    assert answered(beat) == Answer("in a collective 2\nwaits", groups)


def test_an_error_is_an_answer(beat: str) -> None:
    inquiry.answer_with(lambda: [].pop())
    assert inquiry.ask(beat)
    assert answered(beat) == Answer("IndexError: pop from empty list")


def test_the_longest_answer_is_read(beat: str) -> None:
    groups = {f"{number:05}" + "\0" * 99: InGroup(1 << 53, 1 << 53, "\0" * 999) for number in range(99)}
    inquiry.answer_with(lambda: Answer("\udc80" * 99_999, groups))
    assert inquiry.ask(beat)
    found = answered(beat)
    assert found
    assert found.text == r"\udc80" * inquiry.LONGEST_TEXT
    assert len(found.groups) == inquiry.MOST_GROUPS


@pytest.mark.parametrize(
    "forged",
    [
        b"",
        b"\x80\x02}.",
        b"[" * 100_000,
        b'{"text": "x"}',
        b'{"text": 7, "groups": []}',
        b'{"text": "", "groups": {"a": 1}}',
        b'{"text": "", "groups": [["a", 1, 1]]}',
        b'{"text": "", "groups": [["a", -1, 1, ""]]}',
        b'{"text": "", "groups": [["a", NaN, 1, ""]]}',
        b'{"text": "", "groups": [["a", true, 1, ""]]}',
        b'{"text": "", "groups": [[["a"], 1, 1, ""]]}',
    ],
)
def test_what_a_script_forges_is_not_an_answer(forged: bytes, beat: str) -> None:
    Path(f"{beat}.answer").write_bytes(forged)
    assert inquiry.read_answer(beat) is None


def test_a_rank_without_collectives_is_not_queried(beat: str) -> None:
    assert not inquiry.ask(beat)
    assert inquiry.read_answer(beat) is None


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
    assert inquiry.read_answer(beat) is None


def test_outside_a_job_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(heartbeat.VARIABLE, raising=False)
    before = threading.active_count()
    inquiry.answer_with(Answer)
    assert threading.active_count() == before
