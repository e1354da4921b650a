"""The command line of MPICH's mpirun, from options that were written for Open MPI."""

from __future__ import annotations

import pytest

from cloudtrain.contract import RankSlot
from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.launchers.mpi_options import for_mpich
from cloudtrain.runtime.launchers.mpirun import Mpirun

ENVIRONMENT = {"PATH": "/opt/bin:/bin", "MASTER_ADDR": "10.0.0.1", "OF_JOB": "it's"}


@pytest.mark.parametrize(
    ("options", "translated"),
    [
        ([], []),
        (["-x", "A=b=c", "--x", "B="], ["-genv", "A", "b=c", "-genv", "B", ""]),
        (["-x", "OF_JOB"], ["-genv", "OF_JOB", "it's"]),
        (["-bind-to", "none", "--map-by", "slot"], []),
        (["--bind-to", "core", "-map-by", "socket"], ["-bind-to", "core", "-map-by", "socket"]),
        (["--verbose", "--oversubscribe", "--allow-run-as-root"], []),
        (["-print-all-exitcodes", "-iface", "eth0"], ["-print-all-exitcodes", "-iface", "eth0"]),
    ],
)
def test_options(options: list[str], translated: list[str]) -> None:
    assert for_mpich(options, ENVIRONMENT) == translated


@pytest.mark.parametrize("option", ["-mca", "--mca", "--prtemca"])
def test_settings_of_open_mpi_are_refused(option: str) -> None:
    with pytest.raises(InvalidJob, match=f"{option} is an option of Open MPI") as caught:
        for_mpich([option, "pml", "ob1"], ENVIRONMENT)
    assert "Open MPI first on the PATH" in caught.value.hint


def test_the_command_line() -> None:
    mpirun = Mpirun("/usr/bin/mpirun", 4, is_mpich=True)
    slot = RankSlot.on_host(0, 2, 3)[0]
    command = mpirun.command(
        slot, ["python", "rank.py"], ENVIRONMENT, "-x A=1", remote_shell="/run/bin/shell"
    )
    assert " ".join(command) == (
        "/usr/bin/mpirun -rmk user -launcher ssh -launcher-exec /run/bin/shell -localhost 10.0.0.1"
        " -hosts localhost:3,cloudtrain-1:3 -genvnone -genv PATH /opt/bin:/bin -genv TMPDIR /tmp -genv A 1"
        " -np 6 python rank.py"
    )
