"""Which launcher starts the ranks, and how many per host, as encoded in the platform's hyperparameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import MOST_HOSTS, Fields
from cloudtrain.contract.frameworks import MIRRORED, PARAMETER_SERVER, TENSORFLOW_LAUNCHERS as TENSORFLOW

_KEYS = {
    "sagemaker_torch_distributed_enabled": "torchrun",
    "sagemaker_mpi_enabled": "mpirun",
    "sagemaker_horovod_enabled": "horovod",
    "sagemaker_processes_enabled": "processes",
    "sagemaker_agent_enabled": "agent",
    "sagemaker_multi_worker_mirrored_strategy_enabled": MIRRORED,
    "sagemaker_parameter_server_enabled": PARAMETER_SERVER,
}
_COUNT = "sagemaker_processes_per_host"
_MPI_COUNT = "sagemaker_mpi_num_of_processes_per_host"
_MPI_OPTIONS = "sagemaker_mpi_custom_mpi_options"
_MAX_RESTARTS = "sagemaker_torch_distributed_max_restarts"
_IMPLEMENTATION = "sagemaker_horovod_implementation"

_COMMAND = "sagemaker_agent_command"
_PRESET = "sagemaker_agent_preset"

HOROVOD_IMPLEMENTATIONS = ("auto", "cloudtrain", "horovod")


@dataclass(frozen=True)
class Launcher:
    """``name`` is one of single, processes, torchrun, mpirun, horovod, agent, multi_worker_mirrored,
    parameter_server.

    Raises ValueError if ``implementation`` is not one of `HOROVOD_IMPLEMENTATIONS`.
    """

    name: str = "single"
    processes_per_host: int | None = None
    """None: one per GPU or Neuron core, and one on a host without either."""
    custom_mpi_options: str = ""
    """Additional options for mpirun, in shell syntax."""
    implementation: str = "auto"
    """The implementation of ``horovod`` that the ranks of a horovod job import."""
    max_restarts: int = 0
    """How often torchrun restarts the ranks of a host."""
    agent_command: str = ""
    """The command of the agent on each host: see `cloudtrain.contract.agent`."""
    agent_preset: str = ""
    """The preset that the command comes from; empty if the user wrote the command."""

    def __post_init__(self) -> None:
        if self.implementation not in HOROVOD_IMPLEMENTATIONS:
            raise ValueError(
                f"{_IMPLEMENTATION}: {self.implementation!r} is not one of {', '.join(HOROVOD_IMPLEMENTATIONS)}"
            )

    def to_hyperparameters(self) -> dict[str, Any]:
        """This launcher in the keys of SageMaker's SDK; in cloudtrain's own keys for ``processes`` and ``horovod``."""
        values: dict[str, Any] = {key: True for key, name in _KEYS.items() if name == self.name}
        if self.processes_per_host is not None:
            values[_MPI_COUNT if self.name == "mpirun" else _COUNT] = self.processes_per_host
        if self.custom_mpi_options:
            values[_MPI_OPTIONS] = self.custom_mpi_options
        if self.max_restarts:
            values[_MAX_RESTARTS] = self.max_restarts
        if self.name == "agent":
            values[_COMMAND] = self.agent_command
            if self.agent_preset:
                values[_PRESET] = self.agent_preset
        if self.is_horovod:
            values[_IMPLEMENTATION] = self.implementation
        return values

    @classmethod
    def from_hyperparameters(cls, values: Mapping[str, Any]) -> Launcher:
        """The inverse of `to_hyperparameters`, on decoded values. Raises ValueError, which names the key."""
        given = Fields(values)
        return cls(
            name=next((name for key, name in _KEYS.items() if values.get(key) is True), "single"),
            processes_per_host=given.integer(
                _MPI_COUNT, given.integer(_COUNT, None, most=MOST_HOSTS), most=MOST_HOSTS
            ),
            custom_mpi_options=str(values.get(_MPI_OPTIONS, "")),
            implementation=given.text(_IMPLEMENTATION, "auto"),
            agent_command=given.text(_COMMAND, ""),
            agent_preset=given.text(_PRESET, ""),
            max_restarts=given.integer(_MAX_RESTARTS, 0),
        )

    @property
    def is_none(self) -> bool:
        """Whether the script runs once on each host, as under plain ``python``."""
        return self.name == "single"

    @property
    def is_horovod(self) -> bool:
        return self.name == "horovod"

    @property
    def has_tasks(self) -> bool:
        """Whether the hosts are tasks of TensorFlow's own cluster, which ``TF_CONFIG`` describes."""
        return self.name in TENSORFLOW

    @property
    def has_servers(self) -> bool:
        """Whether each host also runs a parameter server, if there are several hosts."""
        return self.name == PARAMETER_SERVER

    @property
    def has_one_rank(self) -> bool:
        """Whether the script runs on the first host only. The agents of the other hosts serve it."""
        return self.agent_preset == "ray"

    def ranks_on_host(self, accelerators: int) -> int:
        if self.is_none or self.has_tasks or self.has_one_rank:
            return 1
        return self.processes_per_host or accelerators or 1
