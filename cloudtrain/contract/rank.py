"""One rank's place in the world, and the variables that tell it."""

from __future__ import annotations

from dataclasses import dataclass


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
        """The slots of one host, every host having ``local_size`` of them."""
        first = host_rank * local_size
        return [
            cls(first + local, local, host_count * local_size, local_size, host_rank, host_count)
            for local in range(local_size)
        ]

    def environment(self, master_addr: str, master_port: int) -> dict[str, str]:
        """What ``torch.distributed`` (``env://``) and `cloudtrain.distributed` read."""
        return {
            "RANK": str(self.rank),
            "LOCAL_RANK": str(self.local_rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_WORLD_SIZE": str(self.local_size),
            "GROUP_RANK": str(self.host_rank),
            "GROUP_WORLD_SIZE": str(self.host_count),
            "MASTER_ADDR": master_addr,
            "MASTER_PORT": str(master_port),
        }
