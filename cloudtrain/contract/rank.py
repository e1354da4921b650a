"""One rank's position in the world, and the environment variables that state it."""

from __future__ import annotations

from dataclasses import astuple, dataclass

from cloudtrain.contract.launcher_env import CLOUDTRAIN, TORCHRUN, LauncherEnv


@dataclass(frozen=True)
class RankSlot:
    """Rank ``rank`` of ``world_size``, the ``local_rank``-th of ``local_size`` on host ``host_rank``."""

    rank: int
    local_rank: int
    world_size: int
    local_size: int
    host_rank: int
    host_count: int

    @classmethod
    def on_host(cls, host_rank: int, host_count: int, local_size: int) -> list[RankSlot]:
        """The slots of one host; every host has ``local_size`` of them."""
        first = host_rank * local_size
        return [
            cls(first + local, local, host_count * local_size, local_size, host_rank, host_count)
            for local in range(local_size)
        ]

    def variables(self, names: LauncherEnv) -> dict[str, str]:
        """This slot in the variables of one launcher."""
        values = (
            *(self.rank, self.world_size, self.local_rank, self.local_size),
            *(self.host_rank, self.host_count),
        )
        return dict(zip(astuple(names), map(str, values)))

    def environment(self, master_addr: str, master_port: int) -> dict[str, str]:
        """The variables that ``torch.distributed`` (``env://``) and `cloudtrain.distributed` read."""
        return {
            **self.variables(TORCHRUN),
            "MASTER_ADDR": master_addr,
            "MASTER_PORT": str(master_port),
        }

    def environment_without_launcher(self, master_addr: str, master_port: int) -> dict[str, str]:
        """The variables of a script that no launcher starts, which only `cloudtrain.distributed` reads.

        With several hosts, ``MASTER_ADDR`` and ``MASTER_PORT`` too, as in AWS's images for PyTorch: scripts that take
        their rank from ``SM_HOSTS`` rely on them.
        """
        master = {"MASTER_ADDR": master_addr, "MASTER_PORT": str(master_port)}
        return {**self.variables(CLOUDTRAIN), **(master if self.host_count > 1 else {})}
