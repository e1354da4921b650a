"""A real Slurm of two nodes: submit to user code, submissions through ssh, and watching a thousand jobs.

    python benchmarks/on_slurm.py [submit] [ssh] [watch] [--runs 9] [--quick] [--json]

- ``submit``: wall-clock seconds from the start of the submitting command to the first line of the script on the first
  node, against a hand-written sbatch file that starts one task on each node with srun, submitit and torchx.
- ``ssh``: submissions over a connection with a laptop's latency, in handshakes: ``ssh HOST true`` on a new connection.
  The login node is a real sshd on this machine; a proxy before it delays every packet by half the round trip. All
  commands of cloudtrain share one connection.
- ``watch``: calls of the scheduler's commands while ten processes watch a thousand jobs. Each describes its hundred
  jobs and reads their states again and again, as `cloudtrain wait` does. Then all jobs are cancelled, and each process
  sees how they ended. The first calls are two, because the place in the queue takes the jobs of all users.

The contestants take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from _common import OURS, TEST_FOLDERS, Report, in_turns, run_parts
from _peers import SUBMITIT, TORCHX, peer

sys.path += TEST_FOLDERS

from login_node import ALIAS, LoginNode
from slurm_cluster import FINAL, Configuration, SlurmCluster
from slurm_programs import program

from cloudtrain import Estimator
from cloudtrain.platforms.batch.control import log_out
from cloudtrain.platforms.slurm import SlurmPlatform

SCRIPT = """import os, sys, time
with open(os.path.join(os.path.dirname(sys.argv[-1]), "began"), "a") as file:
    file.write(f"{time.time()}\\n")
"""

BY_HAND = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
srun {python} {script} {mark}
"""

SUBMITIT_SCRIPT = """import subprocess, sys, submitit
executor = submitit.SlurmExecutor(folder=sys.argv[1])
executor.update_parameters(nodes=2, ntasks_per_node=1, time=5)
executor.submit(submitit.helpers.CommandFunction([sys.executable, sys.argv[2], sys.argv[3]]))
"""

PATIENCE = 60
"""How long a job may take to begin, in seconds."""


COMMANDS = ("squeue", "sacct", "scontrol", "scancel")
PROCESSES = 10
WATCH = """
import sys, time
from cloudtrain.platforms import get_platform

platform, names = get_platform("slurm"), sys.argv[1:]
looks, seen = 0, set()
while len(seen) < len(names):
    for name in names:
        if name not in seen and platform.describe(name).status.is_final:
            seen.add(name)
        platform.states(name)
        looks += 1
    time.sleep(0.5)
print(looks, len({platform.describe(name).reason for name in names}))
"""


def submit(report: Report, given: argparse.Namespace) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name,
        SlurmCluster(Configuration()) as cluster,
    ):
        folder = Path(name)
        script = folder / "train.py"
        script.write_text(SCRIPT)
        (folder / "submit.py").write_text(SUBMITIT_SCRIPT)
        mark = str(folder / "mark")
        (folder / "hand.sh").write_text(BY_HAND.format(python=sys.executable, script=script, mark=mark))
        cloudtrain = str(Path(sys.executable).with_name("cloudtrain"))
        commands = {
            OURS: [cloudtrain, "submit", str(script), "--platform", "slurm", "--instance-count", "2", "--no-wait",
                   "--processes-per-host", "1", "--", mark],
            "a hand-written sbatch file": ["sbatch", "hand.sh"],
        }  # fmt: skip
        with report.optional(SUBMITIT):
            commands[SUBMITIT] = [str(peer(SUBMITIT)), "submit.py", str(folder / "logs"), str(script), mark]
        with report.optional(TORCHX):
            torchx = [str(peer(TORCHX).with_name("torchx")), "run", "-s", "slurm", "-cfg", "partition=main"]
            commands[TORCHX] = [*torchx, "utils.sh", "--num_replicas", "2", sys.executable, str(script), mark]
        environment = {
            **os.environ,
            "SLURM_CONF": str(cluster.conf),
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        turns = {
            who: partial(until_user_code, command, folder, environment, cluster)
            for who, command in commands.items()
        }
        report.add_all("submit to the first line on an idle Slurm", in_turns(turns, given.runs))


def until_user_code(
    command: list[str], folder: Path, environment: dict[str, str], cluster: SlurmCluster
) -> float:
    """The seconds until the first rank has begun. Then waits until the cluster is idle again."""
    began = folder / "began"
    began.unlink(missing_ok=True)
    start = time.time()
    # torchx submits the job, then fails to find it, because the cluster has no accounting
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "stdin": subprocess.DEVNULL}
    subprocess.run(command, cwd=folder, env=environment, check=False, **quiet)
    deadline = time.monotonic() + PATIENCE
    while not began.exists() or not began.read_text():
        if time.monotonic() > deadline:
            sys.exit(f"no script began: {command}")
        time.sleep(0.02)
    while not all(state in FINAL for state in cluster.jobs().values()):
        time.sleep(0.1)
    return min(map(float, began.read_text().split())) - start


class SlowLink:
    """A proxy that delays all data. It listens on ``port``."""

    def __init__(self, target: int, delay: float) -> None:
        self._target, self._delay = target, delay
        self.port = 0
        self._ready = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        self._ready.wait(10)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(2 * self._delay)  # TCP's own handshake
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        await asyncio.gather(self._copy(reader, other_writer), self._copy(other_reader, writer))

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            data = b"x"
            while data:
                try:
                    data = await reader.read(1 << 16)
                except OSError:
                    data = b""
                queue.put_nowait((loop.time() + self._delay, data))

        reading = asyncio.create_task(read())
        data = b"x"
        while data:
            due, data = await queue.get()
            await asyncio.sleep(max(0.0, due - loop.time()))
            writer.write(data)
        writer.close()
        await reading


def seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def handshake() -> float:
    """The seconds of a command that does nothing, on a new connection."""
    return seconds(lambda: subprocess.run(["ssh", ALIAS, "true"], check=True))


def fit(folder: Path, name: str, options: dict[str, object]) -> float:
    estimator = Estimator(str(folder / "train.py"), platform=SlurmPlatform(), platform_options=options)
    return seconds(lambda: estimator.fit(wait=False, job_name=name))


def ssh(report: Report, given: argparse.Namespace) -> None:
    runs = given.runs
    with tempfile.TemporaryDirectory(prefix="ct", dir="/tmp") as name, SlurmCluster(Configuration()) as slurm:
        folder = Path(name)
        (folder / "train.py").write_text("print(1)\n")
        node = LoginNode(
            folder / "node", noise=f"export HOME={folder}/there", environ={"SLURM_CONF": str(slurm.conf)}
        )
        link = SlowLink(node.port, given.rtt / 2000)
        key = (folder / "node/known_hosts").read_text()
        (folder / "node/known_hosts").write_text(key.replace(str(node.port), str(link.port)))
        node.configure(port=link.port)
        os.environ |= {
            "PATH": f"{node.folder}/bin:{os.environ['PATH']}",
            "CLOUDTRAIN_HOME": str(folder / "home"),
            "CLOUDTRAIN_CONFIG": os.devnull,
            "SLURM_CONF": str(slurm.conf),
        }
        remote: dict[str, object] = {"login": ALIAS, "folder": "$HOME/ct"}
        try:
            one = statistics.median(handshake() for _ in range(runs))
            first = fit(folder, "first", remote)
            over_ssh = statistics.median(fit(folder, f"again-{run}", remote) for run in range(runs))
            fit(folder, "here-first", {})
            here = statistics.median(fit(folder, f"here-{run}", {}) for run in range(runs))
        finally:
            log_out(ALIAS)
            node.stop()
    for what, value in {
        f"a new connection, round trip {given.rtt:g} ms": one,
        "the first submission, with runtime and source, and its connection": first,
        "a later submission": over_ssh,
        "the same on the login node": here,
    }.items():
        report.add(f"ssh: {what}", OURS, value, note=f"{value / one:.1f} handshakes")
    report.add(
        "ssh: a later submission, more than on the login node", OURS, (over_ssh - here) / one, "handshakes"
    )


def watch(report: Report, given: argparse.Namespace) -> None:
    jobs, seconds = (50, 10.0) if given.quick else (1000, given.seconds)
    with (
        SlurmCluster(Configuration(cpus=4, name="watched")) as slurm,
        tempfile.TemporaryDirectory() as folder,
    ):
        home, calls = Path(folder, "home"), Path(folder, "calls")
        environ = {**slurm.env, "CLOUDTRAIN_HOME": str(home)}
        environ["PATH"] = f"{_counting(Path(folder, 'bin'), calls)}:{environ['PATH']}"

        def enqueue(number: int) -> str:
            name = f"watched-{number}"
            _make_job(home / "jobs" / "slurm" / name, slurm.submit("exec sleep 3600"))
            return name

        with ThreadPoolExecutor(8) as pool:
            names = list(pool.map(enqueue, range(jobs)))
        watchers = [
            subprocess.Popen(
                [sys.executable, "-c", WATCH, *names[start::PROCESSES]], env=environ, stdout=subprocess.PIPE
            )
            for start in range(PROCESSES)
        ]
        time.sleep(seconds)
        during = _times(calls)
        slurm("scancel", "--user", str(os.getuid()))
        looks = sum(int(watcher.communicate(timeout=300)[0].split()[0]) for watcher in watchers)
        after = {name: len(times) - len(during[name]) for name, times in _times(calls).items()}
    what = f"{PROCESSES} processes watch {jobs:,} jobs for {seconds:g} s"
    times = sorted(itertools.chain.from_iterable(during.values()))
    most = max((sum(start <= time < start + 10 for time in times) for start in times), default=0)
    report.add(f"{what}: descriptions", OURS, looks, "")
    report.add(f"{what}: calls", OURS, len(times), "", _named({name: len(at) for name, at in during.items()}))
    report.add(f"{what}: most calls in 10 s", OURS, most, "")
    report.add(f"{what}: calls after the end", OURS, sum(after.values()), "", _named(after))


def _named(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _make_job(folder: Path, number: int) -> None:
    """Create the folder of a queued job, as a submission does."""
    folder.mkdir(parents=True)
    now = time.time()
    request = {"settings": {}, "channels": {}, "environment": {}, "hyperparameters": {}}
    submission = {"number": str(number), "cluster": "", "time": now, "attempt": 0}
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "batch.json").write_text(json.dumps({"submissions": [submission]}))
    (folder / "state.json").write_text(json.dumps({"status": "Pending", "submitted_at": now}))


def _counting(folder: Path, calls: Path) -> Path:
    """Create wrappers of Slurm's commands that record the times of calls. Returns their folder."""
    folder.mkdir()
    for name in COMMANDS:
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $(date +%s.%N)" >> {calls}\nexec {program(name)} "$@"\n')
        path.chmod(0o755)
    return folder


def _times(calls: Path) -> dict[str, list[float]]:
    lines = calls.read_text().splitlines() if calls.exists() else []
    return {name: [float(line.split()[1]) for line in lines if line.split()[0] == name] for name in COMMANDS}


if __name__ == "__main__":
    run_parts(
        __doc__,
        {"submit": submit, "ssh": ssh, "watch": watch},
        runs=9,
        options=(("--rtt", 60.0), ("--seconds", 120.0)),
    )
