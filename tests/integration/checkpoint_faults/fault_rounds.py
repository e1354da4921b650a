"""Rounds of a training that is killed: how they are drawn, played and judged."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fault_figures import Figures, Judge
from fault_places import Host, Place
from fault_proxy import ERRORS, Fault, no_fault
from fault_training import Training

VICTIMS = ("rank 0", "rank 1", "supervisor", "group")
STORAGE = {"sound": 3, "flaky": 4, "stalls": 1, "paused": 1, "killed": 1}
"""The storage's faults in a round, and their relative frequencies."""
FLAKY = [Fault.DELAY, Fault.SLOW_BODY, Fault.CUT_REQUEST, Fault.CUT_ANSWER, Fault.LOST_ANSWER, *ERRORS]
FLAKY_SHARE = 0.2
"""The share of a flaky round's requests that fail."""

START_TIMEOUT = 60.0
PATIENCE = 2.0
"""Seconds to wait for commits, from the start of the training."""
GRACE = 2.0
"""Seconds after a kill in which the remaining processes end by themselves."""


@dataclass(frozen=True)
class Round:
    victim: str
    storage: str
    commits: int
    """Saves that become durable before the kill, unless that takes longer than `PATIENCE`."""
    seconds: float
    """From those commits to the kill."""
    fault_seconds: float
    """From those commits to the fault of the server."""
    when_busy: str
    asynchronous: bool
    every: int
    step_seconds: float
    waits: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Round:
        seconds = draw.uniform(0, 0.3)
        [storage] = draw.choices(list(STORAGE), list(STORAGE.values()))
        return cls(
            victim=draw.choice(VICTIMS),
            storage=storage,
            commits=draw.randrange(4),
            seconds=seconds,
            fault_seconds=draw.uniform(0, seconds),
            when_busy=draw.choice(("wait", "skip", "queue")),
            asynchronous=draw.random() < 0.8,
            every=draw.choice((1, 1, 2, 3)),
            step_seconds=draw.uniform(0.005, 0.02),
            waits=draw.choice((1, 3)),
        )

    def training(self, place: Place, framework: str, journal: Path) -> Training:
        return Training(
            uri=place.uri,
            local=place.local,
            journal=str(journal),
            framework=framework,
            when_busy=self.when_busy,
            asynchronous=self.asynchronous,
            every=self.every,
            step_seconds=self.step_seconds,
            waits=self.waits,
        )


def play(place: Place, folder: Path, kills: int, seed: int, first: int = 1) -> Figures:
    """Play rounds from number ``first`` on, until ``kills`` trainings were killed; every tenth round uses torch."""
    judge = Judge()
    with Host(place.env) as host:
        number = first - 1
        while judge.figures.kills.total() < kills:
            number += 1
            _play(place, host, folder, number, seed, judge)
    return judge.figures


def _play(place: Place, host: Host, folder: Path, number: int, seed: int, judge: Judge) -> None:
    """One round. A number and a seed always draw the same round; its timing depends on the machine."""
    draw = random.Random(f"{seed} {number}")
    round = Round.drawn(draw)
    if place.server is None:
        round = replace(round, storage="sound")
    framework = "torch" if number % 10 == 0 else "numpy"
    where = f"round {number} ({round.victim}, {round.storage}, {framework})"
    journal = folder / f"{number}.journal"
    training = round.training(place, framework, journal)
    if _killed(place, host, training, round, draw):
        judge.figures.kills[round.victim] += 1
        judge.figures.storage[round.storage] += 1
    judge.read(journal.read_text(), where)
    everything = number % 3 == 0
    judge.found(host.call("look", uri=place.uri, local=place.local, everything=everything), where)
    if place.local:  # another machine sees only the remote checkpoints
        found = host.call("look", uri=place.uri, local=None, everything=everything)
        judge.found(found, f"{where}, elsewhere")


def _killed(place: Place, host: Host, training: Training, round: Round, draw: random.Random) -> bool:
    """Play one round, then repair the storage. Returns False if the training ended by itself."""
    with _flaky(place, round, draw):
        host.call("train", **asdict(training))
        _wait_for_saves(Path(training.journal), round.commits)
        time.sleep(round.fault_seconds)
        with _broken(place, round):
            time.sleep(round.seconds - round.fault_seconds)
            killed: bool = host.call("kill", victim=round.victim, grace=GRACE)
    if place.proxy:
        place.proxy.settle()
    return killed


def _wait_for_saves(journal: Path, commits: int) -> None:
    """Wait until the first save has begun, then up to `PATIENCE` for the commits."""
    start = time.monotonic()
    while True:
        text = journal.read_text() if journal.exists() else ""
        waited = time.monotonic() - start
        if "refused" in text or ("begun" in text and (text.count("durable") >= commits or waited > PATIENCE)):
            return
        assert waited < START_TIMEOUT, "the training does not begin to save"
        time.sleep(0.002)


@contextlib.contextmanager
def _flaky(place: Place, round: Round, draw: random.Random) -> Iterator[None]:
    """Inject faults into a share of the requests, including those of the first restore."""
    if place.proxy is None or round.storage != "flaky":
        yield
        return

    def choose(method: str) -> Fault:
        return draw.choice(FLAKY) if draw.random() < FLAKY_SHARE else Fault.PASS

    place.proxy.choose = choose
    yield
    place.proxy.choose = no_fault


@contextlib.contextmanager
def _broken(place: Place, round: Round) -> Iterator[None]:
    """Stop the server from answering until the training is dead."""
    if place.server is None or place.proxy is None or round.storage in ("sound", "flaky"):
        yield
    elif round.storage == "stalls":
        place.proxy.choose = lambda method: Fault.STALL
        yield
        place.proxy.choose = no_fault
    elif round.storage == "paused":
        os.kill(place.server.pid, signal.SIGSTOP)
        yield
        os.kill(place.server.pid, signal.SIGCONT)
    else:
        os.kill(place.server.pid, signal.SIGKILL)
        yield
        place.server.stop()
        place.server.start()
        place.proxy.upstream = place.server.env["AWS_ENDPOINT_URL_S3"]
