"""Distributions: how the ranks of a job are started.

The format is that of the SageMaker SDK: ``{"mpi": {"enabled": True, "processes_per_host": 8}}``. ``enabled``
defaults to true.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

LONGEST_COMMAND = 2000
"""In characters. The command is passed in a hyperparameter, which SageMaker limits to 2,500."""
ProcessesPerHost = Annotated[int, Meta(ge=1)]


class _Kind(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    enabled: bool = True


class TorchDistributed(_Kind, frozen=True):
    """``torchrun`` on every host.

    ``processes_per_host`` defaults to the number of GPUs or Neuron cores, or 1. ``max_restarts`` is the number of times
    that a host restarts its ranks after one has failed.
    """

    processes_per_host: ProcessesPerHost | None = None
    max_restarts: Annotated[int, Meta(ge=0)] = 0


class Processes(_Kind, frozen=True):
    """Ranks that cloudtrain starts itself, with the variables of the container contract. For any framework."""

    processes_per_host: ProcessesPerHost | None = None


class Mpi(_Kind, frozen=True):
    """``mpirun`` of Open MPI or MPICH on the first host. ``custom_mpi_options`` are split like a shell command."""

    processes_per_host: ProcessesPerHost | None = None
    custom_mpi_options: str = ""


class Horovod(_Kind, frozen=True):
    """Scripts written for Horovod: ``import horovod.torch as hvd``.

    ``implementation`` is the package that they import as ``horovod``: cloudtrain's (``cloudtrain``), the original
    (``horovod``), or the original if it is installed, otherwise cloudtrain's (``auto``). ``custom_mpi_options`` apply
    only if ``mpirun`` starts the ranks, which the original Horovod requires without Gloo.
    """

    implementation: Literal["auto", "cloudtrain", "horovod"] = "auto"
    processes_per_host: ProcessesPerHost | None = None
    custom_mpi_options: str = ""


class Agent(_Kind, frozen=True):
    """Another project's launcher, started once on each host: ``accelerate launch``, ``deepspeed``, ``ray``, or yours.

    ``command`` is split like a shell command, and has placeholders of the contract, such as ``{host_rank}``. ``preset``
    names a command that cloudtrain provides, and ``options`` are appended to it.
    """

    preset: Literal["accelerate", "deepspeed", "ray"] | None = None
    command: Annotated[str, Meta(max_length=LONGEST_COMMAND)] = ""
    options: Annotated[str, Meta(max_length=LONGEST_COMMAND)] = ""
    processes_per_host: ProcessesPerHost | None = None


class PytorchDdp(_Kind, frozen=True):
    """SageMaker's launcher for PyTorch DDP."""

    custom_mpi_options: str = ""


class PytorchXla(_Kind, frozen=True):
    """SageMaker's launcher for PyTorch XLA, with SageMaker Training Compiler."""


class DataParallel(_Kind, frozen=True):
    """SageMaker's data parallel library, which some of its images include."""

    custom_mpi_options: str = ""


class ModelParallel(_Kind, frozen=True):
    """SageMaker's model parallel library, with its ``parameters``. Another distribution starts the ranks."""

    parameters: dict[str, Any] = {}


class SmDistributed(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One of SageMaker's libraries."""

    dataparallel: DataParallel | None = None
    modelparallel: ModelParallel | None = None

    @property
    def enabled(self) -> bool:
        return any(kind and kind.enabled for kind in (self.dataparallel, self.modelparallel))


class ParameterServer(_Kind, frozen=True):
    """TensorFlow's parameter servers, one for each worker."""


class MultiWorkerMirrored(_Kind, frozen=True):
    """TensorFlow's ``MultiWorkerMirroredStrategy``."""


class Distribution(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At most one of these is enabled, except that ``smdistributed`` can be combined with ``mpi`` or
    ``torch_distributed``.

    ``instance_groups`` are the names of the groups of a heterogeneous cluster that run ranks.
    """

    torch_distributed: TorchDistributed | None = None
    processes: Processes | None = None
    mpi: Mpi | None = None
    horovod: Horovod | None = None
    agent: Agent | None = None
    pytorchddp: PytorchDdp | None = None
    pytorchxla: PytorchXla | None = None
    parameter_server: ParameterServer | None = None
    multi_worker_mirrored_strategy: MultiWorkerMirrored | None = None
    smdistributed: SmDistributed | None = None
    instance_groups: list[str] = []

    @property
    def enabled(self) -> dict[str, _Kind | SmDistributed]:
        """The enabled kinds by name."""
        kinds = {name: getattr(self, name) for name in self.__struct_fields__ if name != "instance_groups"}
        return {name: kind for name, kind in kinds.items() if kind is not None and kind.enabled}
