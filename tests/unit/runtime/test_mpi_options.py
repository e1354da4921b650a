"""Options of users for mpirun, for both versions of Open MPI."""

from __future__ import annotations

import pytest

from cloudtrain.errors import InvalidJob
from cloudtrain.runtime.launchers.mpi_options import for_version, parse

READ = {
    "": [],
    '-x \'A=b c\' --mca a "b\\"c"': ["-x", "A=b c", "--mca", "a", 'b"c'],
    "--NCCL_DEBUG INFO -verbose": ["-x", "NCCL_DEBUG=INFO", "-verbose"],
    "--NCCL_DEBUG=WARN": ["-x", "NCCL_DEBUG=WARN"],
    "-x  LD_LIBRARY_PATH  -x\nB=$HOME": ["-x", "LD_LIBRARY_PATH", "-x", "B=$HOME"],
}


@pytest.mark.parametrize("text", READ)
def test_options_are_split_like_a_shell_command(text: str) -> None:
    assert parse(text) == READ[text]


REFUSED = {
    "-x 'A=b": "like a shell command",
    "-np 4": "-np is not allowed",
    "--host a,b": "--host",
    "-mca a b -npernode 2": "-npernode",
}


@pytest.mark.parametrize("text", REFUSED)
def test_options_for_hosts_and_ranks_are_refused(text: str) -> None:
    with pytest.raises(InvalidJob, match=f"custom_mpi_options: .*{REFUSED[text]}"):
        parse(text)


OPEN_MPI_5 = {
    "-bind-to none -map-by slot": "--bind-to none --map-by slot",
    "-verbose -v --tag-output": "--verbose -v --tag-output",
    "-q --quiet -display-map": "--display-map",
    "-x A=-b -x -mca": "-x A=-b -x -mca",
    "-mca pml ob1": "-mca pml ob1",
    "-mca btl vader,self,tcp": "-mca btl sm,self,tcp",
    "--mca btl ^openib,vader": "--mca btl ^openib,sm",
    "-mca btl_vader_single_copy_mechanism none": "-mca btl_sm_single_copy_mechanism none",
    "-mca btl_tcp_if_include eth0": "-mca btl_tcp_if_include eth0",
    "-mca orte_abort_on_non_zero_status 1": "--prtemca prte_abort_on_non_zero_status 1",
    "-mca plm_rsh_num_concurrent 8": "--prtemca plm_ssh_num_concurrent 8",
    "-mca oob_tcp_if_include eth0": "--prtemca prte_if_include eth0",
    "-mca hwloc_base_binding_policy none": "--prtemca hwloc_default_binding_policy none",
    "--mca rmaps_base_mapping_policy slot": "--prtemca rmaps_default_mapping_policy slot",
    "-mca odls_base_sigkill_timeout -1": "-mca odls_base_sigkill_timeout -1",
    "--timeout 5 -oversubscribe": "--timeout 5 --oversubscribe",
}


@pytest.mark.parametrize("text", OPEN_MPI_5)
def test_options_are_translated_for_open_mpi_5(text: str) -> None:
    assert for_version(text.split(), 5) == OPEN_MPI_5[text].split()
    assert for_version(text.split(), 4) == text.split()
