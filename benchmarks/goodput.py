"""Measures the goodput of a training with a fault in every minute: a lost rank, a lost host, no storage.

    python benchmarks/goodput.py [--seconds 1800] [--fault-every 60] [--seed 1] [--quick] [--json]

Two ranks train for that time, with a checkpoint of 16 MiB to a real S3 server every five seconds. cloudtrain restarts
its job, and its Checkpointer also copies the state to the memory of the host every second. The same loop under torchrun
saves with torch.save and boto3, or with DCP's async_save and Amazon's S3 writer; torchrun is restarted after each
failure, or restarts the ranks itself. A run without a step for a minute is ended.

The faults come in turns, at the same moments for all: SIGKILL of one random rank; of all processes of the host, which
are the ranks and torchrun or cloudtrain's runtime; of one random rank while the S3 server is paused for 15 s.

Goodput is the time of the steps that were kept, at the pace of a run without checkpoints and faults, divided by the
time from the start of the command to its end. An ideal run would lose only what it takes to start the script, after
each fault: no step is computed again, and no save costs time.

Takes 4 x 30 minutes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path

from _common import OURS, PeerMissing, Report, run_parts
from _counting_relay import counting_relay
from _peers import peer

from cloudtrain import Estimator
from cloudtrain.contract import JobStatus
from cloudtrain.testing import S3Server

LOOP = Path(__file__).with_name("_goodput_loop.py")
BUCKET = "goodput"
RANKS = 2
PACE_SECONDS = 20.0
HANG_SECONDS = 60.0
"""Seconds without a step after which a run is restarted."""
AWAY_SECONDS = 15.0
ENDPOINT = "AWS_ENDPOINT_URL_S3"

RANK, HOST, AWAY = "rank", "host", "rank, storage away"


@dataclass
class Run:
    """One run, as seen from outside. All times are in seconds since the epoch."""

    began: float
    ended: float = 0.0
    faults: list[tuple[str, float]] = field(default_factory=list)
    """The kind and the time of each fault."""
    sent: int = 0
    """The bytes that the storage has received."""
    steps: list[tuple[str, int, float, float]] = field(default_factory=list)
    """The process, the number and the time of each step, and the seconds of the save before it."""
    started_again: int = 0
    """The number of times that torchrun itself had to be restarted because it failed or hung."""
    reported: str = ""
    """The goodput that cloudtrain reports itself."""

    @property
    def wall(self) -> float:
        return self.ended - self.began

    @property
    def kept(self) -> int:
        return self.steps[-1][1]

    @property
    def recomputed(self) -> int:
        return len(self.steps) - self.kept

    @property
    def most_repeated(self) -> int:
        """The most times that any step was recomputed."""
        return max(Counter(step for _, step, _, _ in self.steps).values()) - 1

    @property
    def saves(self) -> float:
        return sum(stalled for _, _, _, stalled in self.steps)

    @property
    def pace(self) -> float:
        """The median of the seconds between two steps."""
        times = [time for _, _, time, _ in self.steps]
        return statistics.median(after - before for before, after in pairwise(times))

    @property
    def start(self) -> float:
        """The seconds until the end of the first step."""
        return self.steps[0][2] - self.began

    def restarts(self, kind: str) -> list[float]:
        """The seconds from each fault of this kind to the end of the next step of a new process."""
        found = []
        for fault, moment in self.faults:
            before = {process for process, _, at, _ in self.steps if at <= moment}
            after = [at for process, _, at, _ in self.steps if at > moment and process not in before]
            found += [after[0] - moment] if after and fault == kind else []
        return found


@dataclass(frozen=True)
class Contestant:
    start: Callable[[Sequence[str], Run], None]
    saver: str


def goodput(report: Report, given: argparse.Namespace) -> None:
    seconds, every = (20.0, 20.0) if given.quick else (given.seconds, given.fault_every)
    faults = _faults(seconds, every, given.seed)
    contestants = {OURS: Contestant(_cloudtrain, "cloudtrain")}
    try:
        python = peer("checkpoints")
        for who, saver, restarts in (
            ("torchrun, restarted by a loop; torch.save", "torch.save", 0),
            ("torchrun, restarted by a loop; DCP async_save", "dcp", 0),
            ("torchrun --max-restarts=100; torch.save", "torch.save-restarts", 100),
        ):
            contestants[who] = Contestant(partial(_torchrun, python=python, restarts=restarts), saver)
    except PeerMissing as missing:
        report.missing("torchrun", str(missing))
    with S3Server() as server:
        server.create_bucket(BUCKET)
        os.environ.update(server.env)
        pace = _run(Contestant(_torchrun, "none"), min(PACE_SECONDS, seconds), [], server)
        what = f"goodput, a fault in {every:g} s"
        for who, contestant in contestants.items():
            run = _run(contestant, seconds, faults, server)
            ideal = 1 - (1 + len(run.faults)) * pace.start / run.wall
            note = run.reported or f"torchrun started {run.started_again} times more"
            report.add(what, who, 100 * run.kept * pace.pace / run.wall, "%", note)
            note = f"{pace.start:.1f} s for a start of the script"
            report.add(f"{what}: ideal for these faults", who, 100 * ideal, "%", note)
            for kind in (RANK, HOST, AWAY):
                if restarts := run.restarts(kind):
                    report.add(f"{what}: {kind}, to next step", who, restarts)
            report.add(f"{what}: steps recomputed", who, run.recomputed, "")
            report.add(f"{what}: most often, one step", who, run.most_repeated, "")
            report.add(f"{what}: waited for saves", who, run.saves)
            report.add(f"{what}: sent to the storage", who, run.sent, "B")


def _faults(seconds: float, every: float, seed: int) -> list[tuple[str, float]]:
    """The kinds of faults and their times in seconds after the start, with one fault in each interval."""
    numbers = random.Random(seed)
    moments = [start * every + numbers.uniform(0.2, 0.8) * every for start in range(int(seconds // every))]
    return [*zip(cycle((RANK, HOST, AWAY)), moments)]


def _run(
    contestant: Contestant, seconds: float, faults: Sequence[tuple[str, float]], server: S3Server
) -> Run:
    with tempfile.TemporaryDirectory() as name, counting_relay(ENDPOINT) as relay:
        folder = Path(name)
        run = Run(time.time())
        (folder / "began").write_text(str(run.began))
        attacker = threading.Thread(target=_attack, args=(folder, run, faults, server), daemon=True)
        attacker.start()
        uri = f"s3://{BUCKET}/{contestant.saver}"
        contestant.start([contestant.saver, str(folder), uri, str(seconds)], run)
        run.ended = time.time()
        lines = (line.split() for line in (folder / "steps").read_text().splitlines())
        run.steps = [(process, int(step), float(at), float(save)) for process, step, at, save in lines]
        attacker.join()
        run.sent = relay.sent
    return run


def _attack(folder: Path, run: Run, faults: Sequence[tuple[str, float]], server: S3Server) -> None:
    """Cause each fault at its time or, if ranks are restarting then, as soon as they are running."""
    numbers = random.Random(len(faults))
    for kind, moment in faults:
        time.sleep(max(0.0, run.began + moment - time.time()))
        chosen = numbers.randrange(RANKS)
        if kind == AWAY:
            os.kill(server.pid, signal.SIGSTOP)
            resume = threading.Timer(AWAY_SECONDS, os.kill, (server.pid, signal.SIGCONT))
            resume.start()
            time.sleep(AWAY_SECONDS / 3)
        while not run.ended:
            ranks = [_process(folder / f"rank-{rank}.pid") for rank in range(RANKS)]
            if all(ranks):
                victims = [parent for _, parent in ranks] + [rank for rank, _ in ranks]
                run.faults.append((kind, time.time()))
                for victim in dict.fromkeys(victims) if kind == HOST else [ranks[chosen][0]]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim, signal.SIGKILL)
                break
            time.sleep(0.1)
        if kind == AWAY:
            resume.join()


def _process(path: Path) -> tuple[int, ...]:
    """The process of the rank that has written this file, and its parent; empty if it is not running."""
    try:
        process = int(path.read_text())
        state, parent = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]
        runs = state != "Z" and LOOP.name in Path(f"/proc/{process}/cmdline").read_text()
        return (process, int(parent)) if runs else ()
    except (OSError, ValueError):
        return ()


def _cloudtrain(arguments: Sequence[str], run: Run) -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["CLOUDTRAIN_HOME"] = home
        job = Estimator(
            LOOP.name,
            source_dir=str(LOOP.parent),
            distribution={"processes": {"processes_per_host": RANKS}},
            arguments=list(arguments),
            max_retry_attempts=30,
            hang_timeout=HANG_SECONDS,
        ).fit(wait=False)
        for line in job.follow():
            print(line, file=sys.stderr)
        job.wait()
        description = job.describe()
        assert description.status == JobStatus.COMPLETED, description.failure
        assert description.goodput is not None
        lost = ", ".join(f"{cause} {took:.1f} s" for cause, took in description.goodput.lost.items())
        run.reported = f"`describe`: {description.goodput.goodput:.1%}, lost: {lost}"


def _torchrun(
    arguments: Sequence[str], run: Run, *, python: Path = Path(sys.executable), restarts: int = 0
) -> None:
    """Run torchrun, and restart it if it fails or there is no step for `HANG_SECONDS`.

    Args:
        restarts: the number of times that torchrun itself may restart the ranks.
    """
    options = [f"--nproc-per-node={RANKS}", f"--max-restarts={restarts}", "--standalone"]
    command = [str(python), "-m", "torch.distributed.run", *options, str(LOOP), *arguments]
    steps = Path(arguments[1], "steps")
    while True:
        process = subprocess.Popen(
            command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=sys.stderr, start_new_session=True
        )
        began = time.time()
        while process.poll() is None:
            time.sleep(0.1)
            if time.time() - max(began, steps.stat().st_mtime if steps.exists() else 0) > HANG_SECONDS:
                _end(process)
        if process.returncode == 0:
            return
        run.started_again += 1


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let torchrun end its ranks, which are not in its process group, before it ends itself."""
    process.terminate()
    try:
        process.wait(40)  # torchrun gives its ranks 30 s
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"goodput": goodput},
        options=(("--seconds", 1800.0), ("--fault-every", 60.0), ("--seed", 1)),
    )
