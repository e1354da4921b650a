"""``horovod.common.exceptions``."""

from cloudtrain.distributed import CollectiveError as HorovodInternalError
from cloudtrain.distributed.torch.elastic import HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
