"""Ranks started by a real mpirun, Open MPI 4 and 5, on one host and on two, without ssh."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from local_jobs import Run, events, folder, live_processes, wait_for_end, wait_until, write

from cloudtrain import FailureClass, InvalidJob, Job, JobStatus
from cloudtrain.runtime.ports import KEY_FILE

pytestmark = pytest.mark.usefixtures("shared_environments")

MPIRUN = {"4": "/usr/bin/mpirun", "5": str(Path(sys.executable).with_name("mpirun"))}

RunMpi = Callable[..., Job]


@pytest.fixture(params=list(MPIRUN))
def run_mpi(request: pytest.FixtureRequest, run: Run, tmp_path: Path) -> RunMpi:
    """``run(...)`` with two ranks on a host and the mpirun of one version.

    The job's requirements give it an environment whose folder does not contain an mpirun.
    """
    mpirun = MPIRUN[request.param]
    answer = (
        subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False).stdout
        if os.path.exists(mpirun)
        else ""
    )
    if f"(Open MPI) {request.param}." not in answer:
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"no Open MPI {request.param} at {mpirun}"
        pytest.skip(f"no Open MPI {request.param} at {mpirun}")
    return partial(_start, run, tmp_path, os.path.dirname(mpirun))


def _start(run: Run, tmp_path: Path, path: str, script: str, options: str = "", **arguments: Any) -> Job:
    name = arguments.pop("name", "train.py")
    source = write(tmp_path / "source", name, script)
    write(source, "requirements.txt", "click\n")  # installed already
    arguments["environment"] = {
        "PATH": f"{path}{os.pathsep}{os.environ['PATH']}",
        **arguments.get("environment", {}),
    }
    mpi = {"processes_per_host": 2, "custom_mpi_options": options}
    return run(source, name=name, distribution={"mpi": mpi}, **arguments)


PLACE = """
    import json, os, sys
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    world.barrier()
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE")
    place = {name: int(os.environ[name]) for name in names}
    place.update(host=os.environ["SM_CURRENT_HOST"], sum=world.allreduce(world.rank), arguments=sys.argv[1:])
    place.update(text=os.environ.get("TEXT"), cwd=os.getcwd(), version=MPI.Get_library_version().split()[2])
    assert (world.rank, world.size) == (place["RANK"], place["WORLD_SIZE"])
    with open(f"{os.environ['SM_MODEL_DIR']}/{world.rank}", "w") as file:
        json.dump(place, file)
"""


@pytest.mark.parametrize("hosts", [1, 2])
def test_the_position_of_every_rank(run_mpi: RunMpi, hosts: int) -> None:
    job = run_mpi(
        PLACE,
        """-verbose -x "TEXT=a 'b' \\"c\\"" -mca btl_vader_single_copy_mechanism none -bind-to none -map-by slot""",
        instance_count=hosts,
        hyperparameters={"colon": ":", "quote": 'it\'s "x" $HOME', "blank": ""},
    )
    assert job.status == JobStatus.COMPLETED, job.logs()
    names = [f"algo-{number + 1}" for number in range(hosts)]
    places = [
        json.loads(path.read_text())
        for name in names
        for path in sorted(folder(job).host(name).model.iterdir())
        if path.name.isdigit()
    ]
    assert len(places) == 2 * hosts
    for rank, place in enumerate(places):
        host, local = divmod(rank, 2)
        assert place.pop("version").startswith("v")
        assert place == {
            "RANK": rank,
            "WORLD_SIZE": 2 * hosts,
            "LOCAL_RANK": local,
            "LOCAL_WORLD_SIZE": 2,
            "GROUP_RANK": host,
            "GROUP_WORLD_SIZE": hosts,
            "host": names[host],
            "sum": sum(range(2 * hosts)),
            "arguments": ["--blank", "", "--colon", ":", "--quote", 'it\'s "x" $HOME'],
            "text": "a 'b' \"c\"",
            "cwd": str(folder(job).host(names[host]).code),
        }
    assert live_processes(job) == []


# rank 3, on the second host, ends badly; rank 0 waits for it in a collective, in which it uses a whole processor
RANK_3 = """
    import os, signal, sys, time
    {mpi}
    print("started", flush=True)
    if os.environ["RANK"] == "3":
        time.sleep(0.3)
        {ending}
    {wait}
"""
IN_MPI = {
    "mpi": "from mpi4py import MPI",
    "wait": 'MPI.COMM_WORLD.barrier() if os.environ["RANK"] == "0" else time.sleep(600)',
}
NO_MPI = {"mpi": "", "wait": "time.sleep(600)"}

ENDINGS = {
    "exit-5": ("sys.exit(5)", {"exit_code": 5, "failure_class": FailureClass.USER_ERROR}),
    "os-exit": ("os._exit(9)", {"exit_code": 9}),
    "exception": ("raise ValueError('bad')", {"exit_code": 1, "exception_type": "ValueError", "message": "bad"}),
    "kill-9": ("os.kill(os.getpid(), 9)", {"exit_code": 137, "signal": 9, "failure_class": FailureClass.KILLED}),
    "segfault": ("os.kill(os.getpid(), 11)", {"exit_code": 139, "signal": 11}),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDINGS)
@pytest.mark.parametrize("mpi", [IN_MPI, NO_MPI], ids=["mpi", "no-mpi"])
def test_one_rank_fails(run_mpi: RunMpi, case: str, mpi: dict[str, str]) -> None:
    ending, expected = ENDINGS[case]
    job = run_mpi(RANK_3.format(ending=ending, **mpi), instance_count=2)
    failure = job.failure
    assert job.status == JobStatus.FAILED
    assert failure
    assert (failure.rank, failure.host) == (3, "algo-2"), failure
    assert {name: getattr(failure, name) for name in expected} == expected
    for outcome in (outcomes := events(job, "outcome")):
        assert (outcome["status"], outcome["exit_code"]) == ("Failed", failure.exit_code)
        assert outcome["time"] - events(job, "rank-ended")[0]["time"] < 30
    assert {outcome["source"] for outcome in outcomes} == {"algo-1", "algo-2"}
    assert live_processes(job) == []


def test_mpi_abort_is_a_failure_of_its_rank(run_mpi: RunMpi) -> None:
    job = run_mpi(RANK_3.format(ending="MPI.COMM_WORLD.Abort(6)", **IN_MPI), instance_count=2)
    assert job.status == JobStatus.FAILED
    failure = job.failure
    assert failure
    assert (failure.exit_code, failure.rank, failure.host) == (6, 3, "algo-2"), failure


def test_a_world_that_is_not_finalized_ends(run_mpi: RunMpi) -> None:
    """The exit codes of the ranks count, unless mpirun killed a rank; mpirun may also wait forever."""
    script = (
        "import os; from mpi4py import MPI; MPI.COMM_WORLD.barrier(); print('done', flush=True); os._exit(0)"
    )
    job = run_mpi(script, instance_count=2)
    assert len({outcome["status"] for outcome in events(job, "outcome")}) == 1
    assert job.status == JobStatus.COMPLETED or (job.failure and job.failure.exit_code)
    assert live_processes(job) == []


def test_a_stop_gives_every_rank_its_grace_period(run_mpi: RunMpi) -> None:
    """Ranks end one after another, the last one long after mpirun would have killed it."""
    job = run_mpi(
        """
        import os, signal, sys, time
        def save(*_):
            time.sleep(int(os.environ["RANK"]))
            print("saved", flush=True)
            sys.exit(int(os.environ["RANK"]) % 2)
        signal.signal(signal.SIGTERM, save)
        print("on", flush=True)
        time.sleep(600)
        """,
        wait=False,
        instance_count=2,
    )
    wait_until(lambda: job.logs().count("] on\n") == 4, "four ranks")
    job.stop()
    wait_for_end(job)
    assert (job.status, job.failure) == (JobStatus.STOPPED, None)
    assert job.logs().count("saved") == 4
    assert live_processes(job) == []


def test_a_killed_mpirun_is_a_failure(run_mpi: RunMpi) -> None:
    job = run_mpi(RANK_3.format(ending="", **NO_MPI), wait=False, instance_count=2)
    wait_until(lambda: job.logs().count("] started\n") == 4, "four ranks")
    [pid] = [
        int(process.name)
        for process in Path("/proc").glob("[0-9]*")
        if _runs_mpirun(process) and str(folder(job).path).encode() in (process / "environ").read_bytes()
    ]
    os.kill(pid, signal.SIGKILL)
    wait_for_end(job)
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert job.failure.message.startswith("mpirun failed")
    assert job.failure.exit_code == 137
    assert live_processes(job) == []


def _runs_mpirun(process: Path) -> bool:
    try:
        program = os.path.basename((process / "exe").readlink())
    except OSError:
        return False
    return program in ("mpirun", "prterun", "prte", "orterun")


def test_an_option_that_mpirun_lacks(run_mpi: RunMpi) -> None:
    job = run_mpi("print('never')", "--no-such-option", instance_count=2)
    assert job.status == JobStatus.FAILED
    failure = job.failure
    assert failure
    assert (failure.rank, failure.phase, failure.failure_class) == (None, "launch", FailureClass.PLATFORM)
    assert "no-such-option" in failure.reason()
    assert "custom_mpi_options" in failure.hint


def test_ranks_are_placed_by_host(run_mpi: RunMpi) -> None:
    job = run_mpi("import time; time.sleep(600)", "--map-by node", instance_count=2)
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert "remove --map-by and --rank-by from" in job.failure.message


def test_a_shell_script_is_launched_too(run_mpi: RunMpi) -> None:
    job = run_mpi("echo rank $RANK of $WORLD_SIZE; exit 0", name="train.sh", instance_count=2)
    assert job.status == JobStatus.COMPLETED, job.logs()
    assert [job.logs().count(f"rank {rank} of 4") for rank in range(4)] == [1, 1, 1, 1]


def test_an_mpi_job_inside_a_rank_or_an_allocation_is_a_separate_world(run_mpi: RunMpi) -> None:
    outer = {
        "OMPI_COMM_WORLD_RANK": "7",
        "OMPI_COMM_WORLD_SIZE": "8",
        "OMPI_MCA_ess_base_jobid": "1",
        "PMIX_RANK": "7",
        "PMIX_NAMESPACE": "outer",
        "PMIX_SERVER_URI2": "outer.0;tcp4://127.0.0.1:1",
        "SLURM_JOBID": "1",
        "SLURM_JOB_ID": "1",
        "SLURM_NODELIST": "elsewhere",
        "SLURM_JOB_NODELIST": "elsewhere",
        "SLURM_NNODES": "1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_TASKS_PER_NODE": "1",
    }
    job = run_mpi(PLACE, environment=outer, instance_count=2)
    assert job.status == JobStatus.COMPLETED, job.logs()


FAKE_MPIRUN = """\
#!/bin/sh
test "$1" = --version && echo "{version}" && exit
while test "${{1#*python}}" = "$1" -o "${{1#PATH}}" != "$1"; do shift; done
OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "$@"
"""


@pytest.mark.parametrize(
    "version, message",
    [
        ("mpirun (Open MPI) 4.1.4", "started a world of 1 ranks, but the job has 2"),
        ("Intel(R) MPI Library for Linux* OS", "is not the mpirun of Open MPI or MPICH"),
    ],
    ids=["world-of-one", "Intel MPI"],
)
def test_an_unsuitable_mpirun(run: Run, tmp_path: Path, version: str, message: str) -> None:
    fake = write(tmp_path / "fake", "mpirun", FAKE_MPIRUN.format(version=version)) / "mpirun"
    fake.chmod(0o755)
    job = _start(run, tmp_path, str(fake.parent), "print('never')")
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert message in job.failure.reason()
    assert "never" not in job.logs()


def test_nothing_is_left_in_the_temporary_folder(run_mpi: RunMpi, tmp_path: Path) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    script = "import tempfile; open(tempfile.gettempdir() + '/own', 'w')"
    job = run_mpi(script, environment={"TMPDIR": str(temporary)}, instance_count=2)
    assert job.status == JobStatus.COMPLETED, job.logs()
    job = run_mpi(
        "import os; os.kill(os.getpid(), 9)", environment={"TMPDIR": str(temporary)}, instance_count=2
    )
    assert job.status == JobStatus.FAILED
    assert sorted(path.name for path in temporary.iterdir()) == [f"cloudtrain-{os.getuid()}", "own"]
    assert [path.name for path in temporary.glob("cloudtrain-*/*")] == [KEY_FILE]


def test_a_stop_while_mpirun_starts(run: Run, tmp_path: Path) -> None:
    waits = '#!/bin/sh\ntest "$1" = --version && echo "mpirun (Open MPI) 4.1.4" || exec sleep 600\n'
    mpirun = write(tmp_path / "waits", "mpirun", waits) / "mpirun"
    mpirun.chmod(0o755)
    job = _start(run, tmp_path, str(mpirun.parent), "print('never')", wait=False, instance_count=2)
    wait_until(
        lambda: len([event for event in events(job, "phase") if event["phase"] == "train"]) == 2, "launch"
    )
    job.stop()
    wait_for_end(job)
    assert job.status == JobStatus.STOPPED
    assert live_processes(job) == []


def test_no_mpirun(run: Run, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    job = _start(run, tmp_path, "", "print('never')", environment={"PATH": str(programs)}, instance_count=2)
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert (job.failure.rank, job.failure.failure_class) == (None, FailureClass.PLATFORM)
    assert "there is no mpirun" in job.failure.message
    assert "Open MPI" in job.failure.hint


def test_an_open_quote_is_refused_before_anything_is_sent(run: Run) -> None:
    with pytest.raises(InvalidJob, match="custom_mpi_options"):
        run("print('never')", distribution={"mpi": {"custom_mpi_options": "-x 'A=b"}})
