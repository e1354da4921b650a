"""Queries about the build and the world."""

from __future__ import annotations

import torch
import torch.distributed as dist
from _cases import run

import cloudtrain.distributed.torch as hvd


def case_mpi_does_not_carry_data() -> None:
    assert not (hvd.mpi_built() or hvd.mpi_enabled() or hvd.mpi_threads_supported())


def case_gloo() -> None:
    assert hvd.gloo_built() == hvd.gloo_enabled() == dist.is_gloo_available()


def case_gpus() -> None:
    assert hvd.cuda_built() == (torch.version.cuda is not None)
    assert hvd.rocm_built() == (torch.version.hip is not None)
    assert (hvd.nccl_built() > 0) == (torch.cuda.is_available() and dist.is_nccl_available())


def case_neither_ddl_nor_ccl() -> None:
    assert not (hvd.ddl_built() or hvd.ccl_built())


def case_the_world() -> None:
    assert hvd.is_initialized()
    assert hvd.is_homogeneous()
    assert hvd.rank() == hvd.local_rank() + hvd.cross_rank() * hvd.local_size()
    assert hvd.local_size() * hvd.cross_size() == hvd.size()


if __name__ == "__main__":
    run(globals())
