"""Measures the goodput of a training of which one random rank is killed in every minute.

    python benchmarks/goodput.py [--seconds 600] [--kill-every 60] [--seed 1] [--quick] [--json]

Two ranks train for that time, with a checkpoint of 16 MiB to a real S3 server every five seconds. cloudtrain restarts
its job and saves with its Checkpointer. The same loop under torchrun saves with torch.save and boto3; torchrun is
restarted after each failure, or restarts the ranks itself. A run without a step for a minute is ended. Ranks
are killed by SIGKILL at the same moments. Goodput is the time of the steps that were kept, at the pace of a run without
checkpoints and kills, divided by the time from the start of the command to its end. An ideal run would lose only what
it takes to start the script, after each kill: no step is computed again, and no save costs time.

Takes 3 x 10 minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

from _common import OURS, Report, run_parts

from cloudtrain import Estimator
from cloudtrain.contract import JobStatus
from cloudtrain.testing import S3Server

LOOP = Path(__file__).with_name("_goodput_loop.py")
BUCKET = "goodput"
RANKS = 2
PACE_SECONDS = 20.0
HANG_SECONDS = 60.0
"""Seconds without a step after which both runs are restarted."""


@dataclass
class Run:
    """One run, as seen from outside. All times are in seconds since the epoch."""

    began: float
    ended: float = 0.0
    kills: list[float] = field(default_factory=list)
    steps: list[tuple[str, int, float, float]] = field(default_factory=list)
    """Process, step, time, and the seconds of the save before it."""
    started_again: int = 0
    """How often torchrun itself had to be restarted, because it failed or hung."""
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
    def saves(self) -> float:
        return sum(stalled for _, _, _, stalled in self.steps)

    @property
    def pace(self) -> float:
        """Seconds between two steps."""
        times = [time for _, _, time, _ in self.steps]
        return statistics.median(after - before for before, after in pairwise(times))

    @property
    def start(self) -> float:
        """Seconds until the end of the first step."""
        return self.steps[0][2] - self.began

    @property
    def restarts(self) -> list[float]:
        """Seconds from each kill to the end of the next step of another process."""
        found = []
        for kill in self.kills:
            before = {process for process, _, at, _ in self.steps if at <= kill}
            after = [at for process, _, at, _ in self.steps if at > kill and process not in before]
            found += [after[0] - kill] if after else []
        return found


def goodput(report: Report, given: argparse.Namespace) -> None:
    seconds, every = (20.0, 20.0) if given.quick else (given.seconds, given.kill_every)
    kills = _moments(seconds, every, given.seed)
    with S3Server() as server:
        server.create_bucket(BUCKET)
        os.environ.update(server.env)
        pace = _run(_torchrun, "none", min(PACE_SECONDS, seconds), [])
        runs = {OURS: _run(_cloudtrain, "cloudtrain", seconds, kills)}
        if not given.quick:
            runs |= {
                "torchrun, restarted by a loop": _run(_torchrun, "torch.save", seconds, kills),
                "torchrun --max-restarts=30": _run(
                    partial(_torchrun, restarts=30), "torch.save-restarts", seconds, kills
                ),
            }
    ideal = 1 - (1 + len(runs[OURS].kills)) * pace.start / runs[OURS].wall
    what = f"goodput, a kill in {every:g} s"
    for who, run in runs.items():
        note = run.reported or f"torchrun started {run.started_again} times more"
        report.add(what, who, 100 * run.kept * pace.pace / run.wall, "%", note)
    report.add(what, "ideal: a kill costs one start of the script", 100 * ideal, "%", f"{pace.start:.1f} s")
    for who, run in runs.items():
        if run.restarts:
            report.add(f"{what}: kill to next step", who, run.restarts)
        report.add(f"{what}: steps recomputed", who, run.recomputed, "")
        report.add(f"{what}: waited for saves", who, run.saves)


def _moments(seconds: float, every: float, seed: int) -> list[float]:
    """Seconds after the start: one moment in each interval."""
    numbers = random.Random(seed)
    return [start * every + numbers.uniform(0.2, 0.8) * every for start in range(int(seconds // every))]


def _run(
    start: Callable[[Sequence[str], Run], None], saver: str, seconds: float, kills: Sequence[float]
) -> Run:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = Run(time.time())
        (folder / "began").write_text(str(run.began))
        killer = threading.Thread(target=_kill, args=(folder, run, kills), daemon=True)
        killer.start()
        uri = f"s3://{BUCKET}/{saver}"
        start([saver, str(folder), uri, str(seconds)], run)
        run.ended = time.time()
        lines = (line.split() for line in (folder / "steps").read_text().splitlines())
        run.steps = [(process, int(step), float(at), float(save)) for process, step, at, save in lines]
        killer.join()
    return run


def _kill(folder: Path, run: Run, moments: Sequence[float]) -> None:
    """Kill a rank at each moment; one that is restarting, once it runs."""
    numbers = random.Random(len(moments))
    for moment in moments:
        time.sleep(max(0.0, run.began + moment - time.time()))
        path = folder / f"rank-{numbers.randrange(RANKS)}.pid"
        while not run.ended:
            try:
                process = int(path.read_text())
                if LOOP.name in Path(f"/proc/{process}/cmdline").read_text():
                    run.kills.append(time.time())
                    os.kill(process, signal.SIGKILL)
                    break
            except (OSError, ValueError):
                pass
            time.sleep(0.1)


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


def _torchrun(arguments: Sequence[str], run: Run, restarts: int = 0) -> None:
    """Run torchrun, and again if it fails or no step is done for `HANG_SECONDS`.

    Args:
        restarts: how often torchrun may restart the ranks itself.
    """
    options = [f"--nproc-per-node={RANKS}", f"--max-restarts={restarts}", "--standalone"]
    command = [sys.executable, "-m", "torch.distributed.run", *options, str(LOOP), *arguments]
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
    """Have torchrun end its ranks, which are not in its process group, and end."""
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
        options=(("--seconds", 600.0), ("--kill-every", 60.0), ("--seed", 1)),
    )
