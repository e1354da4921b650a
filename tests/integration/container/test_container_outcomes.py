"""How jobs in containers end, and what they report. All jobs of a test run at the same time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path

import docker
import pytest
from container_jobs import folder_of, jobs_in, wait_for_end, wait_until
from engine_daemon import IMAGE, Engine

from cloudtrain import FailureClass, Job, JobStatus

pytestmark = pytest.mark.proof("containers", real="Docker 20.10.24, Podman 4.3.1")

FAILS = """
    import os, sys
    open(os.environ["SM_MODEL_DIR"] + "/half", "w").close()
    open(os.environ["SM_OUTPUT_DATA_DIR"] + "/notes", "w").close()
    print("the last line")
    sys.exit(7 if os.environ["SM_CURRENT_HOST"] == "algo-2" else 0)
"""
WAITS = """
    import os, signal, sys, time
    def save(*_):
        open(os.environ["SM_MODEL_DIR"] + "/saved", "w").close()
        print("saved", flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    print("on", flush=True)
    time.sleep(300)
"""
EATS = "a = [bytearray(b'x') * (8 << 20) for _ in range(100)]"
SHELL = ["/bin/sh", "-c"]


@pytest.fixture(params=["docker", "podman"])
def either(request: pytest.FixtureRequest) -> Engine:
    """Both engines."""
    engine: Engine = request.getfixturevalue("engine" if request.param == "docker" else request.param)
    return engine


def test_every_kind_of_failure(either: Engine, tmp_path: Path) -> None:
    with jobs_in(either, tmp_path) as jobs:
        fails = jobs.start(FAILS, instance_count=2, options={"mount_source": True})
        eats = jobs.start(None, options={"memory": "64m"}, container_entry_point=["python", "-c", EATS])
        says = jobs.start(
            None,
            container_entry_point=[*SHELL, "echo own $0; echo bad data > /opt/ml/output/failure; exit 3"],
            container_arguments=["argument"],
        )
        again = jobs.start(
            None, container_entry_point=[*SHELL, "echo again; exit 4"], max_retry_attempts=1, instance_count=2
        )
        missing = jobs.start(
            "", image_uri="registry.invalid/missing:1", options={"pull": "never"}, max_retry_attempts=1
        )
        away = jobs.start("", image_uri="127.0.0.1:9/missing:1")
        blind = jobs.start("", options={"gpus": ["none-such"]})
        started = {
            "fails": fails,
            "eats": eats,
            "says": says,
            "again": again,
            "missing": missing,
            "away": away,
            "blind": blind,
        }
        ended = {name: wait_for_end(job).describe() for name, job in started.items()}
        assert {name: description.status for name, description in ended.items()} == dict.fromkeys(
            ended, JobStatus.FAILED
        )
        failures = {name: found.failure for name, found in ended.items() if found.failure}
        assert {name: (found.failure_class, found.exit_code) for name, found in failures.items()} == {
            "fails": (FailureClass.USER_ERROR, 7),
            "eats": (FailureClass.OUT_OF_MEMORY, 137),
            "says": (FailureClass.USER_ERROR, 3),
            "again": (FailureClass.USER_ERROR, 4),
            "missing": (FailureClass.PLATFORM, 1),
            "away": (FailureClass.PLATFORM, 1),
            "blind": (FailureClass.PLATFORM, 1),
        }
        assert (failures["fails"].rank, failures["fails"].host) == (1, "algo-2")
        assert "the last line" in failures["fails"].message
        assert failures["eats"].host == "algo-1"
        assert "platform_options.memory" in failures["eats"].hint
        assert failures["says"].message == "bad data"
        assert says.logs() == "own argument\n"
        assert "no image registry.invalid/missing:1" in failures["missing"].message
        assert "cannot be pulled" in failures["away"].message
        assert "registry can be reached" in failures["away"].hint
        assert (failures["away"].phase, failures["away"].host) == ("pull", None)
        assert (ended["again"].attempt, ended["missing"].attempt) == (1, 1)
        assert sorted(line for line in again.logs().splitlines() if line.startswith("[algo")) == [
            *("[algo-1] again", "[algo-1] again", "[algo-2] again", "[algo-2] again"),
        ]
        assert not any(folder_of(fails).host("algo-1").code.iterdir())  # its source was mounted over it
        # the outputs of a failed job are kept, except the model
        assert ended["fails"].model_data is None
        assert ended["fails"].output_data
    assert either.leftovers() == []


def test_killed_preempted_and_stopped_jobs(either: Engine, tmp_path: Path) -> None:
    with jobs_in(either, tmp_path) as jobs:
        loses_a_host = jobs.start(WAITS, instance_count=2, enable_network_isolation=True)
        loses_its_supervisor = jobs.start(WAITS)
        is_preempted = jobs.start(WAITS, options={"max_preemptions": 0})
        never_begins = jobs.start(WAITS, instance_count=2)
        never_begins.stop()
        ignores = jobs.start(None, container_entry_point=[*SHELL, "echo on; sleep 300"], stop_grace=1)
        stopped = _submit_and_interrupt(either, tmp_path)
        running = (loses_a_host, loses_its_supervisor, is_preempted, ignores, stopped)
        for job in running:
            wait_until(lambda job=job: "on" in job.logs(), f"the ranks of {job.name}")

        supervisor = folder_of(loses_its_supervisor).read_record().pid
        assert supervisor
        os.kill(supervisor, signal.SIGKILL)
        with closing(docker.DockerClient(base_url=either.url)) as client:
            filters = {"label": [f"cloudtrain.job={loses_a_host.name}"]}
            [second] = [c for c in client.containers.list(filters=filters) if c.name.endswith("algo-2")]
            second.kill()
            [network] = client.networks.list(filters=filters)
            assert network.attrs["Internal"]
        is_preempted.preempt()
        ignores.stop()
        stopped.stop()

        ended = {job.name: wait_for_end(job).describe() for job in (*running, never_begins)}
        lost = ended[loses_a_host.name].failure
        assert lost
        assert (lost.failure_class, lost.host, lost.exit_code) == (FailureClass.HOST_LOST, "algo-2", 137)
        assert "killed by SIGKILL" in lost.message
        gone = ended[loses_its_supervisor.name].failure
        assert gone
        assert gone.failure_class == FailureClass.KILLED
        preempted = ended[is_preempted.name]
        assert (preempted.status, preempted.reason) == (JobStatus.INTERRUPTED, "preempted")
        for job in (ignores, stopped, never_begins):
            described = ended[job.name]
            assert (described.status, described.exit_code) == (JobStatus.STOPPED, 143), described
        assert stopped.logs().count("saved") == 2
        assert ended[stopped.name].model_data  # a stopped job keeps its model, as on SageMaker
        assert "[rank" not in never_begins.logs()

    # the job without a supervisor has ended too; only its container and network are left to clean
    with closing(docker.DockerClient(base_url=either.url)) as client:
        wait_until(lambda: client.containers.list() == [], "the end of the containers")
    leftover = sorted(either.leftovers())
    assert len(leftover) == 2
    assert all(loses_its_supervisor.name in name for name in leftover)
    assert sorted(_clean(either, "--dry-run")) == leftover == sorted(either.leftovers())
    assert sorted(_clean(either)) == leftover
    assert either.leftovers() == _clean(either) == []


def _submit_and_interrupt(engine: Engine, folder: Path) -> Job:
    """Submit a job with the command, and interrupt the command (Ctrl-C) once the ranks run."""
    script = folder / "patient.py"
    script.write_text(textwrap.dedent(WAITS))
    command = [sys.executable, "-m", "cloudtrain", "submit", str(script), "--name", "patient"]
    options = ["--platform", "container", "--set", f"image_uri={IMAGE}", "--instance-count", "2"]
    where = ["--set", f"platform_options.engine={engine.url}"]
    with subprocess.Popen([*command, *options, *where], stdout=subprocess.PIPE) as client:
        assert client.stdout
        assert b"on" in client.stdout.readline()
        client.send_signal(signal.SIGINT)
        client.stdout.read()
        assert client.wait(60) == 130
    return Job.attach("patient")


def _clean(engine: Engine, *options: str) -> list[str]:
    """The names of the leftovers that `cloudtrain clean` removes."""
    command = [sys.executable, "-m", "cloudtrain", "clean", "--engine", engine.url, "--json", *options]
    result = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    assert result["failed"] == []
    return [leftover["name"] for leftover in result["removed"]]


def test_stacks_of_running_ranks(either: Engine, tmp_path: Path) -> None:
    """Also with native frames, for which a container needs no privilege, and more than once."""
    script = """
        import os, time
        def load():
            time.sleep(300)
        def train():
            time.sleep(300)
        print("ready", flush=True)
        load() if os.environ["SM_CURRENT_HOST"] == "algo-2" else train()
    """
    with jobs_in(either, tmp_path) as jobs:
        job = jobs.start(script, instance_count=2, stop_grace=1)
        wait_until(lambda: job.logs().count("] ready\n") == 2, "the ranks")
        for native in (False, True, False):
            dump = job.stacks(native=native, timeout=90)
            found = [(group.ranks, group.hosts, group.where.partition(" ")[2]) for group in dump.groups]
            assert found == [("0", ("algo-1",), "at train.py:6"), ("1", ("algo-2",), "at train.py:4")]
            assert all(("nanosleep" in group.stack) == native for group in dump.groups)
