"""``horovod.common.exceptions``."""

from cloudtrain.distributed import CollectiveError as HorovodInternalError
from cloudtrain.distributed import HostsUpdatedInterrupt

__all__ = ["HorovodInternalError", "HostsUpdatedInterrupt"]
