"""Which launcher starts the ranks, and how many on a host: told in the platform's hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KEYS = {
    "sagemaker_torch_distributed_enabled": "torchrun",
    "sagemaker_mpi_enabled": "mpirun",
    "sagemaker_processes_enabled": "processes",
}
_COUNT = "sagemaker_processes_per_host"
_MPI_COUNT = "sagemaker_mpi_num_of_processes_per_host"


@dataclass(frozen=True)
class Launcher:
    """``name`` is one of single, processes, torchrun, mpirun.

    ``processes_per_host``: None means one for each GPU of a host, and 1 on a host without.
    """

    name: str = "single"
    processes_per_host: int | None = None

    def to_hyperparameters(self) -> dict[str, Any]:
        """The keys that SageMaker's SDK sends for this launcher (``processes`` is cloudtrain's own)."""
        values: dict[str, Any] = {key: True for key, name in _KEYS.items() if name == self.name}
        if self.processes_per_host is not None:
            values[_MPI_COUNT if self.name == "mpirun" else _COUNT] = self.processes_per_host
        return values

    @classmethod
    def from_hyperparameters(cls, values: Mapping[str, Any]) -> Launcher:
        """The inverse of `to_hyperparameters`, on decoded values."""
        name = next((name for key, name in _KEYS.items() if values.get(key) is True), "single")
        return cls(name, values.get(_MPI_COUNT, values.get(_COUNT)))

    def ranks_on_host(self, gpus: int) -> int:
        if self.name == "single":
            return 1
        return self.processes_per_host or gpus or 1
