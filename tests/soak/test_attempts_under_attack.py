"""Attempts of a job that are stopped, woken up and killed at random while others have taken over."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cloudtrain.checkpoint import Checkpointer

SECONDS = float(os.environ.get("CLOUDTRAIN_ATTACK_SECONDS", "150"))
PROGRAM = Path(__file__).parent / "attacked_attempts.py"
SEED = int(os.environ.get("CLOUDTRAIN_SEED", "1"))


class Round:
    """One job: attempts of two ranks each. Rank 0 saves."""

    def __init__(self, nursery: subprocess.Popen[str], folder: Path, uri: str, source: random.Random) -> None:
        self._nursery, self._folder, self._source, self.uri = nursery, folder, source, uri
        self.counted = source.random() < 0.5
        self._options = {
            "uri": uri,
            "keep": source.choice((1, 2, 3, None)),
            "asynchronous": source.random() < 0.3,
        }
        self._ranks: dict[tuple[int, int], int] = {}
        self._began: list[float] = []
        folder.mkdir()

    def log(self, attempt: int, rank: int) -> list[dict[str, Any]]:
        with contextlib.suppress(FileNotFoundError):
            text = (self._folder / f"{attempt}-{rank}").read_text()
            return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
        return []

    def begin(self, attempt: int) -> None:
        self._began.append(time.monotonic())
        environ = {"CLOUDTRAIN_RUN_ID": "job", "CLOUDTRAIN_ATTEMPT_ID": f"attempt-{attempt}"}
        if self.counted:
            environ["CLOUDTRAIN_ATTEMPT"] = str(attempt)
        for rank in (0, 1):
            given = {
                **self._options,
                "environ": {**environ, "RANK": str(rank)},
                "rank": rank,
                "attempt": attempt,
                "log": str(self._folder / f"{attempt}-{rank}"),
                "other": str(self._folder / f"{attempt}-{1 - rank}"),
                "seed": self._source.random(),
            }
            assert self._nursery.stdin and self._nursery.stdout
            self._nursery.stdin.write(json.dumps(given) + "\n")
            self._nursery.stdin.flush()
            self._ranks[attempt, rank] = int(self._nursery.stdout.readline())

    def send(self, attempt: int, number: int) -> None:
        for rank in (0, 1):
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._ranks[attempt, rank], number)

    def wait_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert time.monotonic() < deadline, self.describe()
            time.sleep(0.002)

    def has_begun(self, attempt: int) -> bool:
        """Whether both ranks have restored, or failed."""
        return all(self.log(attempt, rank) for rank in (0, 1))

    def play(self, attempts: int) -> None:
        source = self._source
        for attempt in range(attempts):
            self.begin(attempt)
            if not self.counted or attempt == attempts - 1 or source.random() < 0.7:
                self.wait_until(lambda: self.has_begun(attempt))  # noqa: B023
            self.pester(attempt, source.uniform(0, 0.4))
            if attempt < attempts - 1:
                end = source.choice((signal.SIGSTOP, signal.SIGSTOP, signal.SIGKILL, None))
                if end:
                    self.send(attempt, end)
        last = attempts - 1
        saved = len(self.log(last, 0))
        self.pester(last, 0.3)
        for zombie in range(last):
            self.send(zombie, signal.SIGCONT)
        self.wait_until(lambda: len(self.log(last, 0)) > saved + 3 or self.ends(last))
        self.begin(attempts)  # it reads all
        self.wait_until(lambda: self.has_begun(attempts))

    def pester(self, attempt: int, seconds: float) -> None:
        """Wake up and pause earlier attempts."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for zombie in range(attempt):
                self.send(zombie, self._source.choice((signal.SIGCONT, signal.SIGSTOP, signal.SIGCONT)))
            time.sleep(self._source.choice((0.001, 0.01, 0.05)))

    def ends(self, attempt: int) -> list[dict[str, Any]]:
        return [
            one for rank in (0, 1) for one in self.log(attempt, rank) if one["what"] in ("refused", "failed")
        ]

    def check(self) -> None:
        began, count = [*self._began, float("inf")], len(self._began)
        before: tuple[int, list[int]] = (0, [])
        confirmed = 0
        for attempt in range(count):
            errors = [one for one in self.ends(attempt) if one["time"] < began[attempt + 1]]
            assert not errors, f"attempt {attempt} failed before the next one began: {errors}"
            failed = [one for one in self.ends(attempt) if one["what"] == "failed"]
            assert not failed, f"attempt {attempt}: {failed}"
            logs = [self.log(attempt, rank)[:1] for rank in (0, 1)]
            # one that wakes up in the middle of it may still restore what the next attempt has saved, and saves nothing
            first = [log[0] for log in logs if log and log[0]["time"] < began[attempt + 1]]
            starts = [one["history"] for one in first if one["what"] == "restored"]
            if len(starts) == 2:
                assert starts[0] == starts[1], f"the ranks of attempt {attempt} differ: {starts}"
            if starts:
                number, known = before
                history = starts[0]
                assert history[: len(known)] == known, f"attempt {attempt} has not {known}: {history}"
                rest = history[len(known) :]
                assert rest == sorted(rest) and all(number <= one < attempt for one in rest), (attempt, rest)
                assert len(history) >= confirmed, f"attempt {attempt} has lost step {confirmed}: {history}"
                before = attempt, history
            saves = [one for one in self.log(attempt, 0) if one["what"] == "saved"]
            durable = [one["step"] for one in saves if one["time"] < began[attempt + 1]]
            confirmed = max([confirmed, *durable])

    def check_store(self) -> None:
        """Each checkpoint is whole. What an earlier attempt has committed last may be there still."""
        for name in ("CLOUDTRAIN_RUN_ID", "CLOUDTRAIN_ATTEMPT", "CLOUDTRAIN_ATTEMPT_ID"):
            assert name not in os.environ
        reader = Checkpointer(self.uri)
        for step in reader.steps():
            restored = reader.restore(step)
            assert restored and len(restored.state["history"]) == step

    def describe(self) -> str:
        lines = [f"counted: {self.counted}, {self._options}"]
        for attempt, at in enumerate(self._began):
            lines.append(f"attempt {attempt} began at {at:.4f}")
            for rank in (0, 1):
                lines += [f"  rank {rank}: {one}" for one in self.log(attempt, rank)[-6:]]
        return "\n".join(lines)

    def end(self) -> None:
        for attempt in range(len(self._began)):
            self.send(attempt, signal.SIGKILL)


@pytest.fixture
def nursery() -> Iterator[subprocess.Popen[str]]:
    program = [sys.executable, str(PROGRAM)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield process
        assert process.stdin
        process.stdin.close()


@pytest.mark.timeout(SECONDS + 600)
@pytest.mark.parametrize("where", ["file", "s3"])
def test_what_an_attempt_has_restored_is_neither_mixed_nor_replaced(
    where: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "WORLD_SIZE", "SM_CURRENT_HOST"):
        monkeypatch.delenv(name, raising=False)
    base = tmp_path.as_uri() if where == "file" else f"s3://{request.getfixturevalue('s3')}"
    nursery = request.getfixturevalue("nursery")
    number, until = 0, time.monotonic() + SECONDS
    while time.monotonic() < until:
        number += 1
        source = random.Random(SEED * 1_000_000 + number)
        played = Round(nursery, tmp_path / f"round-{number}", f"{base}/run-{number}", source)
        try:
            played.play(source.randint(2, 4))
            played.end()
            played.check()
            played.check_store()
        except BaseException:
            print(f"round {number} of seed {SEED}\n{played.describe()}")
            raise
        finally:
            played.end()
    print(f"{number} rounds")
