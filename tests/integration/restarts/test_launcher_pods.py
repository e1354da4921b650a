"""A host that leads and has no ranks, as the launcher of an MPIJob, and shows the output of the others."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pods import RESTART, Pods, wait_until

from cloudtrain.contract import JobStatus
from cloudtrain.observe.event_lines import parse_event_line

SCRIPT = """
    import json, os, sys
    from pathlib import Path

    rank = os.environ["RANK"]
    print(json.dumps([os.environ["WORLD_SIZE"], os.environ["SM_HOSTS"], os.environ["MASTER_ADDR"]]))
    print(f"loss of rank {rank}=0.{rank}5")
    sys.stdout.buffer.write(b"not text \\xff\\n")
    for number in range(2000):
        print(f"line {number} of rank {rank}")
    if rank == "0":
        Path(os.environ["SM_MODEL_DIR"], "model").write_text("trained")
    print(f"the end of rank {rank}", end="", flush=True)
"""
MPIRUN = Path(sys.executable).with_name("mpirun")
LAUNCHER = {"no_ranks": True, "forward_output": True, "event_lines": True}


def test_the_launcher_shows_everything(pods: Callable[..., Pods], tmp_path: Path) -> None:
    job = pods(
        SCRIPT,
        count=3,
        metric_definitions=((r"loss", r"rank 1=(.*)"),),
        output_uri=(tmp_path / "out").as_uri(),
        **LAUNCHER,
    )
    launcher, *workers = job.start_all()
    assert [pod.exit_code() for pod in (launcher, *workers)] == [0, 0, 0]
    lines = launcher.log.read_bytes().splitlines()
    for rank, worker in enumerate(workers):
        own = [line for line in lines if line.startswith(b"[rank %d] " % rank)]
        assert own == [
            line for line in worker.log.read_bytes().splitlines() if line.startswith(b"[rank %d] " % rank)
        ]
        assert len(own) == 2004
        world, hosts, master = json.loads(own[0].partition(b"] ")[2])
        assert (world, json.loads(hosts), master) == ("2", ["job-1", "job-2"], "job-1")
        assert own[2] == b"[rank %d] not text \xff" % rank
        assert own[-1] == b"[rank %d] the end of rank %d" % (rank, rank)
    # the events of all hosts are those of the launcher, once
    events = [event for line in lines if (event := parse_event_line(line, "job-0"))]
    assert [event["value"] for event in events if event["event"] == "metric"] == [0.15]
    ending = launcher.ending
    assert (ending.status, ending.metrics) == (JobStatus.COMPLETED, {"loss": 0.15})
    assert (tmp_path / "out" / "model.tar.gz").exists()
    assert not any((launcher.paths.base / "code").glob("__pycache__"))


@pytest.mark.soak
def test_a_slow_reader_of_the_launchers_log_stops_no_rank(pods: Callable[..., Pods], tmp_path: Path) -> None:
    job = pods(
        """
        import os
        from pathlib import Path
        for number in range(80_000):
            print(f"{number:06} {'x' * 100}")
        Path(os.environ["DONE"]).touch()
        """,
        no_ranks=True,
        forward_output=True,
    )
    done, pipe = tmp_path / "done", tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    launcher = job.start(0, wrapper=("sh", "-c", f'exec "$@" > {pipe}', "sh"))
    worker = job.start(1, DONE=str(done))
    wait_until(done.exists, "the end of the script")
    assert launcher.process.poll() is None  # not a line has been read
    os.set_blocking(reader, True)
    data = b""
    while part := os.read(reader, 1 << 20):
        data += part
    os.close(reader)
    assert (launcher.exit_code(), worker.exit_code()) == (0, 0)
    lines = [line for line in data.decode().splitlines() if line.startswith("[rank 0]")]
    assert lines == sorted(lines)
    assert lines[0].startswith("[rank 0] 000000 ")
    note = next(line for line in data.decode().splitlines() if "are left out here: see its own log" in line)
    left_out = int(note.split()[1].replace(",", ""))
    assert left_out + len(lines) == 80_000
    assert left_out > 10_000
    assert worker.text.count("[rank 0] ") == 80_000


@pytest.mark.soak
def test_a_stop_of_the_launcher_lets_the_ranks_end(pods: Callable[..., Pods]) -> None:
    job = pods(
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.5), print("saved", flush=True), sys.exit()))
        print("begun", flush=True)
        time.sleep(600)
        """,
        **LAUNCHER,
    )
    launcher, worker = job.start_all()
    wait_until(lambda: "begun" in launcher.text, "the first line")
    launcher.stop()
    assert (launcher.exit_code(), worker.exit_code()) == (RESTART, RESTART)
    assert "[rank 0] saved" in launcher.text
    assert launcher.ending.status == JobStatus.INTERRUPTED


@pytest.mark.soak
def test_a_failure_of_a_worker(pods: Callable[..., Pods]) -> None:
    job = pods("print('about to fail'); raise SystemExit(9)", **LAUNCHER)
    launcher, worker = job.start_all()
    assert (launcher.exit_code(), worker.exit_code()) == (9, RESTART)
    assert "[rank 0] about to fail" in launcher.text
    failure = launcher.ending.failure
    assert failure is not None
    assert (failure.host, failure.exit_code) == ("job-1", 9)


@pytest.mark.soak
@pytest.mark.skipif(not MPIRUN.exists(), reason="no Open MPI 5")
def test_mpirun_runs_among_the_workers(pods: Callable[..., Pods]) -> None:
    """It runs on the first worker, and its daemons on the others: the launcher passes their commands on."""
    job = pods(
        """
        import os
        names = "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "SM_CURRENT_HOST"
        print("ran", *map(os.environ.get, names), flush=True)
        """,
        count=3,
        hosts_on_machine=2,
        hyperparameters={"sagemaker_mpi_enabled": "true", "sagemaker_mpi_num_of_processes_per_host": "1"},
        **LAUNCHER,
    )
    launcher, *workers = [
        job.start(index, PATH=f"{MPIRUN.parent}{os.pathsep}{os.environ['PATH']}") for index in range(3)
    ]
    assert [pod.exit_code() for pod in (launcher, *workers)] == [0, 0, 0], launcher.text
    lines = launcher.text.splitlines()
    assert sorted(line for line in lines if re.match(r"\[rank \d\] ran", line)) == [
        "[rank 0] ran 0 2 job-1",
        "[rank 1] ran 1 2 job-2",
    ]
