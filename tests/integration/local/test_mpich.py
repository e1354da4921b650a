"""Ranks started by a real mpirun of MPICH, on one host and on two, without ssh."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from local_jobs import Run, folder, live_processes, write

from cloudtrain import JobStatus

pytestmark = pytest.mark.usefixtures("shared_environments")

HYDRA = Path("/usr/bin/mpiexec.hydra")
LIBRARY = Path("/usr/lib/x86_64-linux-gnu/libmpich.so.12")

REQUIREMENTS = "click\n"
"""Installed already. They give the job an environment whose folder does not contain an mpirun."""

PLACE = """
    import json, os, socket, sys
    from mpi4py import MPI
    world = MPI.COMM_WORLD
    world.barrier()
    place = {name: os.environ.get(name) for name in ("RANK", "LOCAL_RANK", "GROUP_RANK", "GREETING", "SM_CURRENT_HOST")}
    place.update(sum=world.allreduce(world.rank), library=MPI.Get_library_version().split()[0], arguments=sys.argv[1:])
    place.update(temporary=os.environ["TMPDIR"])
    assert (world.rank, world.size) == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    with open(f"{os.environ['SM_MODEL_DIR']}/{world.rank}", "w") as file:
        json.dump(place, file)
    if "fail" in sys.argv and world.rank == 1:
        sys.exit(3)  # MPICH's mpirun waits for the others
    if "fail" in sys.argv:
        world.barrier()
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a job whose mpirun, and whose mpi4py, are those of MPICH."""
    if not HYDRA.exists() or not LIBRARY.exists():
        assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", "no MPICH"
        pytest.skip("no MPICH")
    programs = tmp_path / "mpich"
    programs.mkdir()
    (programs / "mpirun").symlink_to(HYDRA)
    (programs / "hydra_pmi_proxy").symlink_to(HYDRA.with_name("hydra_pmi_proxy"))
    (programs / "libmpi.so.12").symlink_to(LIBRARY)  # the name that the ABI of MPICH prescribes
    return {
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(programs),
        "MPI4PY_MPIABI": "mpich",
        "TMPDIR": str(tmp_path),
    }


def test_two_hosts_of_two_ranks(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    source = write(tmp_path / "source", "train.py", PLACE)
    write(source, "requirements.txt", REQUIREMENTS)
    mpi = {
        "processes_per_host": 2,
        "custom_mpi_options": '-x "GREETING=good day" -bind-to none -map-by slot --NCCL_DEBUG INFO',
    }

    job = run(
        source,
        distribution={"mpi": mpi},
        instance_count=2,
        environment=environment,
        hyperparameters={"quote": "it's"},
    )
    assert job.status == JobStatus.COMPLETED, job.logs()
    for host in range(2):
        for local in range(2):
            rank = 2 * host + local
            path = folder(job).host(f"algo-{host + 1}").model / str(rank)
            assert json.loads(path.read_text()) == {
                "RANK": str(rank),
                "LOCAL_RANK": str(local),
                "GROUP_RANK": str(host),
                "GREETING": "good day",
                "SM_CURRENT_HOST": f"algo-{host + 1}",
                "sum": 6,
                "library": "MPICH",
                "arguments": ["--quote", "it's"],
                "temporary": str(tmp_path),
            }


def test_one_rank_fails_and_the_others_do_not_wait(
    run: Run, tmp_path: Path, environment: dict[str, str]
) -> None:
    source = write(tmp_path / "source", "train.py", PLACE)
    write(source, "requirements.txt", REQUIREMENTS)
    job = run(
        source, distribution={"mpi": {"processes_per_host": 2}}, environment=environment, arguments=["fail"]
    )
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert (job.failure.rank, job.failure.exit_code) == (1, 3), job.failure
    assert live_processes(job) == []


def test_an_option_of_open_mpi(run: Run, tmp_path: Path, environment: dict[str, str]) -> None:
    source = write(tmp_path / "source", "train.py", "print('never')")
    write(source, "requirements.txt", REQUIREMENTS)
    mpi = {"processes_per_host": 2, "custom_mpi_options": "-mca pml ob1"}
    job = run(source, distribution={"mpi": mpi}, environment=environment)
    assert job.status == JobStatus.FAILED
    assert job.failure
    assert "-mca is an option of Open MPI, and the mpirun of this job is MPICH's" in job.failure.reason()
