"""``horovod.common.process_sets``."""

from cloudtrain.distributed import ProcessSet
from cloudtrain.distributed.torch import add_process_set, global_process_set, remove_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
