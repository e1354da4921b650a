"""The agent launcher: another program starts the ranks, and the job is watched as with every launcher."""

from __future__ import annotations

import json
import os
import signal
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_jobs import Run, events, live_processes, wait_for_end, wait_until, write

from cloudtrain import FailureClass, InvalidJob, Job, JobStatus

AGENT = """
    import os, subprocess, sys

    first, count = int(sys.argv[1]), int(sys.argv[2])
    program = sys.argv[sys.argv.index("--") + 1:]
    if "--through-another-process" in sys.argv:  # as DeepSpeed does it, which does not end with its parent
        options = [*sys.argv[1:3], *(option for option in sys.argv[3:] if not option.startswith("--through"))]
        sys.exit(subprocess.call([sys.executable, sys.argv[0], *options]))
    ranks = []
    for local in range(count):
        place = {"RANK": str(first + local), "LOCAL_RANK": str(local)}
        added = [f"--local_rank={local}"] if "--add-local-rank" in sys.argv else []
        command = [sys.executable, program[0], *added, *program[1:]]
        ranks.append(subprocess.Popen(command, env={**os.environ, **place}))
    sys.exit(max(abs(rank.wait()) for rank in ranks))
"""
"""A launcher as other projects have them. It knows nothing of cloudtrain."""

COMMAND = "{python} agent.py {host_rank} {processes_per_host} --note 'a  {host_rank}' --"
ONE_HOST = "{python} agent.py 0 {processes_per_host} OPTIONS --"

RunAgent = Callable[..., Job]


@pytest.fixture
def run_agent(run: Run, tmp_path: Path) -> RunAgent:
    """``run_agent(script, command)`` with two ranks on a host."""

    def start(script: str, command: str, *, ranks: int = 2, name: str = "train.py", **arguments: Any) -> Job:
        source = write(tmp_path / "source", "agent.py", AGENT)
        write(source, name, script)
        agent = {"command": command, "processes_per_host": ranks}
        return run(source, name=name, distribution={"agent": agent}, **arguments)

    return start


SHOWS = """
    import json, os, sys
    from cloudtrain import environment

    names = "WORLD_SIZE LOCAL_RANK GROUP_RANK NODE_RANK JAX_PROCESS_ID DMLC_NUM_WORKER".split()
    shown = [int(os.environ[name]) for name in names]
    print(json.dumps([environment.rank(), *shown, sys.argv[1:], os.getcwd() == os.environ["SM_SOURCE_DIR"]]))
    sys.exit(int("fails" in sys.argv and os.environ["RANK"] == "1"))
"""


def test_ranks_of_two_hosts_have_their_places(run_agent: RunAgent) -> None:
    outer = {"RANK": "7", "WORLD_SIZE": "99", "GROUP_RANK": "7"}  # other launchers overwrite them, too
    job = run_agent(SHOWS, COMMAND, ranks=1, instance_count=2, arguments=["--x", "a  'b'"], environment=outer)
    assert job.failure is None, job.logs()
    lines = sorted(job.logs().splitlines())
    assert [line.partition("] ")[0] for line in lines] == ["[rank 0", "[rank 1"]
    shown = [json.loads(line.partition("] ")[2]) for line in lines]
    assert shown == [[rank, 2, 0, rank, rank, rank, 2, ["--x", "a  'b'"], True] for rank in range(2)]
    assert "rank.py train.py --x" in events(job, "launch")[0]["command"]


def test_the_first_rank_that_fails_is_named(run_agent: RunAgent) -> None:
    """And an argument that the launcher adds, such as DeepSpeed's, reaches the script."""
    script = """
        import os, sys, time
        if os.environ["RANK"] == "1":
            raise ValueError(f"it broke: {sys.argv[1:]}")
        time.sleep(600)
    """
    job = run_agent(script, ONE_HOST.replace("OPTIONS", "--add-local-rank"), arguments=["--x"])
    failure = job.failure
    assert failure
    assert (failure.rank, failure.exception_type, failure.exit_code) == (1, "ValueError", 1)
    assert failure.message == "it broke: ['--local_rank=1', '--x']"
    assert failure.traceback
    assert "attached_rank" not in failure.traceback
    assert live_processes(job) == []


@pytest.mark.parametrize(
    ("command", "rank", "message"),
    [
        (
            "{python} agent.py 0 1 --",
            None,
            "agent.py, which distribution.agent starts, ended without starting rank 1",
        ),
        (
            "{python} -c pass",
            None,
            f"{Path(sys.executable).name}, which distribution.agent starts, ended without starting ranks 0, 1",
        ),
        pytest.param(  # test_agent_rank has the same without a job
            "{python} agent.py 0 3 --",
            None,
            "agent.py, which distribution.agent starts, failed: the command of distribution.agent does not fit the "
            "job: it started a process with LOCAL_RANK=2; ranks on a host: 2",
            marks=pytest.mark.soak,
        ),
        pytest.param(  # test_agent_rank has the same without a job
            "{python} agent.py 7 1 --",
            0,
            "the command of distribution.agent does not fit the job: it set RANK=7 for the rank whose RANK is 0 in "
            "this job",
            marks=pytest.mark.soak,
        ),
        (
            "{python} agent.py wrong 2 --",
            None,
            "agent.py, which distribution.agent starts, failed without starting ranks 0, 1: ValueError: invalid "
            "literal for int() with base 10: 'wrong'",
        ),
        (
            "no-such-launcher --x",
            None,
            "there is no program 'no-such-launcher' on the host algo-1, which distribution.agent starts",
        ),
    ],
)
def test_a_command_that_does_not_fit_the_job(
    run_agent: RunAgent, command: str, rank: int | None, message: str
) -> None:
    failure = run_agent("print('on', flush=True)", command).failure
    assert failure
    assert failure.message == message
    assert failure.hint or failure.rank == 0
    assert failure.rank == rank


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        (
            "exit",
            FailureClass.USER_ERROR,
            "sh, which distribution.agent starts, ended before rank 0 had ended",
        ),
        ("kill -9 $$", FailureClass.KILLED, "sh, which distribution.agent starts, was killed by SIGKILL"),
    ],
)
def test_a_launcher_that_ends_before_its_rank(
    run_agent: RunAgent, end: str, kind: FailureClass, message: str
) -> None:
    """It takes its rank along. The report names the launcher, not the rank."""
    script = "import time; open('started', 'w').close(); time.sleep(600)"
    waits = f'"$@" & until [ -e started ]; do sleep 0.05; done; {end}'
    job = run_agent(script, f"sh -c '{waits}' sh {{python}}", ranks=1)
    failure = job.failure
    assert failure
    assert (failure.failure_class, failure.message, failure.rank) == (kind, message, None)
    assert live_processes(job) == []


@pytest.mark.soak  # test_agent_rank has the same without a job
def test_a_program_that_is_killed(run_agent: RunAgent) -> None:
    job = run_agent("kill -9 $$\n", ONE_HOST.replace("OPTIONS", ""), name="train.sh", ranks=1)
    assert job.failure
    assert (job.failure.rank, job.failure.signal, job.failure.exit_code) == (0, signal.SIGKILL, 137)


def test_a_stop_reaches_the_ranks_with_their_grace(run_agent: RunAgent) -> None:
    script = """
        import signal, sys, time
        from cloudtrain import environment
        def save(*_):
            time.sleep(0.5)
            print("saved", environment.preemption() is not None, flush=True)
            sys.exit(0)
        signal.signal(signal.SIGTERM, save)
        print("on", flush=True)
        time.sleep(600)
    """
    job = run_agent(script, ONE_HOST.replace("OPTIONS", "--through-another-process"), wait=False)
    wait_until(lambda: job.logs().count("on") == 2, "two ranks")
    job.stop()
    wait_for_end(job)
    assert job.status == JobStatus.STOPPED
    assert job.logs().count("saved True") == 2
    assert live_processes(job) == []


def test_nothing_survives_a_killed_runtime(run_agent: RunAgent) -> None:
    """Not even ranks below a process that does not end with its parent."""
    script = """
        import os, time
        print("runtime", os.environ["SM_CURRENT_HOST"], flush=True)
        time.sleep(600)
    """
    job = run_agent(script, ONE_HOST.replace("OPTIONS", "--through-another-process"), wait=False)
    wait_until(lambda: job.logs().count("runtime") == 2, "two ranks")
    wait_until(
        lambda: events(job, "host"), "the event of the host"
    )  # a moment after it, the supervisor copies it
    os.kill(events(job, "host")[0]["pid"], signal.SIGKILL)
    wait_for_end(job)
    assert job.failure
    assert live_processes(job) == []


def test_a_hang_shows_the_stacks_of_the_ranks(run_agent: RunAgent) -> None:
    script = """
        import os, time
        from cloudtrain.observe import beat
        def waits_for_nobody():
            time.sleep(600)
        beat()
        while os.environ["RANK"] == "0":
            beat()
            time.sleep(0.1)
        waits_for_nobody()
    """
    failure = run_agent(script, ONE_HOST.replace("OPTIONS", ""), hang_timeout=5).failure
    assert failure
    assert (failure.failure_class, failure.rank) == (FailureClass.HANG, 1)
    assert "waits_for_nobody" in (failure.stacks or "")


def test_ray_is_refused_for_several_hosts_of_one_machine(run: Run) -> None:
    with pytest.raises(InvalidJob, match="Ray runs once on a machine"):
        run("", instance_count=2, distribution={"agent": {"preset": "ray"}})


def test_daemons_of_the_launcher_do_not_stay_as_zombies(run_agent: RunAgent) -> None:
    """``ray stop`` waits until its daemons are gone."""
    script = """
        import os, pathlib, subprocess, sys, time
        daemon = subprocess.run(
            ["sh", "-c", "sleep 0.1 & echo $!"], stdout=subprocess.PIPE, check=True, text=True
        ).stdout.strip()
        deadline = time.monotonic() + 60
        while pathlib.Path("/proc", daemon).exists():
            assert time.monotonic() < deadline, pathlib.Path("/proc", daemon, "stat").read_text()
            time.sleep(0.05)
        print("gone")
    """
    job = run_agent(script, ONE_HOST.replace("OPTIONS", ""), ranks=1)
    assert job.failure is None, job.logs()


def test_the_interpreter_of_the_job_runs_console_scripts_next_to_it(
    run_agent: RunAgent, tmp_path: Path
) -> None:
    """Their first line may name another one, which does not have the job's requirements."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "python").symlink_to(sys.executable)
    launcher = textwrap.dedent(AGENT).replace("first, count =", "sys.argv[1:1] = ['0', '1']; first, count =")
    (tools / "starts-ranks").write_text(f"#!/no/such/python\n{launcher}")
    (tools / "starts-ranks").chmod(0o755)
    options = {"python": str(tools / "python")}
    job = run_agent("print('on')", "starts-ranks --", ranks=1, platform_options=options)
    assert job.failure is None, job.logs()
    assert job.logs() == "[rank 0] on\n"
