"""How the ranks of a job are started.

Written as the SageMaker SDK writes it: ``{"mpi": {"enabled": True, "processes_per_host": 8}}``. To name a
distribution is to want it: ``enabled`` is true unless it says otherwise.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

ProcessesPerHost = Annotated[int, Meta(ge=1)]


class _Kind(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    enabled: bool = True


class TorchDistributed(_Kind, frozen=True):
    """``torchrun`` on every host. ``processes_per_host``: one for each GPU, or 1, unless given.

    ``max_restarts``: how often a host starts its ranks anew when one has failed.
    """

    processes_per_host: ProcessesPerHost | None = None
    max_restarts: Annotated[int, Meta(ge=0)] = 0


class Processes(_Kind, frozen=True):
    """Ranks started by cloudtrain itself, with the environment of the contract: for any framework."""

    processes_per_host: ProcessesPerHost | None = None


class Mpi(_Kind, frozen=True):
    """``mpirun`` of Open MPI, from the first host. ``custom_mpi_options`` are written as in a shell."""

    processes_per_host: ProcessesPerHost | None = None
    custom_mpi_options: str = ""


class Horovod(_Kind, frozen=True):
    """Scripts written for Horovod: ``import horovod.torch as hvd``.

    ``implementation``: whose ``horovod`` they import. ``cloudtrain``'s, the real ``horovod``, or (``auto``) the
    real one where it is installed, cloudtrain's else. ``custom_mpi_options`` hold where ``mpirun`` starts the
    ranks: for a real Horovod that was built without Gloo.
    """

    implementation: Literal["auto", "cloudtrain", "horovod"] = "auto"
    processes_per_host: ProcessesPerHost | None = None
    custom_mpi_options: str = ""


class PytorchDdp(_Kind, frozen=True):
    """SageMaker's own launcher for DDP."""

    custom_mpi_options: str = ""


class DataParallel(_Kind, frozen=True):
    """SageMaker's data parallel library, which its images for some versions have."""

    custom_mpi_options: str = ""


class ModelParallel(_Kind, frozen=True):
    """SageMaker's model parallel library; ``parameters`` are its own. It is launched by another distribution."""

    parameters: dict[str, Any] = {}


class SmDistributed(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """SageMaker's own libraries, one of them."""

    dataparallel: DataParallel | None = None
    modelparallel: ModelParallel | None = None

    @property
    def enabled(self) -> bool:
        return any(kind and kind.enabled for kind in (self.dataparallel, self.modelparallel))


class ParameterServer(_Kind, frozen=True):
    """TensorFlow's parameter servers, one beside each worker."""


class MultiWorkerMirrored(_Kind, frozen=True):
    """TensorFlow's ``MultiWorkerMirroredStrategy``."""


class Distribution(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At most one of these is enabled; ``smdistributed`` may go with ``mpi`` or ``torch_distributed``.

    ``instance_groups`` names the groups of a heterogeneous cluster that have ranks.
    """

    torch_distributed: TorchDistributed | None = None
    processes: Processes | None = None
    mpi: Mpi | None = None
    horovod: Horovod | None = None
    pytorchddp: PytorchDdp | None = None
    parameter_server: ParameterServer | None = None
    multi_worker_mirrored_strategy: MultiWorkerMirrored | None = None
    smdistributed: SmDistributed | None = None
    instance_groups: list[str] = []

    @property
    def enabled(self) -> dict[str, _Kind | SmDistributed]:
        """The enabled kinds by name."""
        kinds = {name: getattr(self, name) for name in self.__struct_fields__ if name != "instance_groups"}
        return {name: kind for name, kind in kinds.items() if kind is not None and kind.enabled}
