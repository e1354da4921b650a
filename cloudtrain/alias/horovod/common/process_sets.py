"""``horovod.common.process_sets``, for the framework that the script has imported."""

import sys
from importlib import import_module

from cloudtrain.distributed import ProcessSet

# torch last: the other frameworks may import it for Gloo
_used = (name for name in ("tensorflow", "mxnet") if f"cloudtrain.distributed.{name}" in sys.modules)
_collectives = import_module(f"cloudtrain.distributed.{next(_used, 'torch')}")

add_process_set = _collectives.add_process_set
global_process_set = _collectives.global_process_set
remove_process_set = _collectives.remove_process_set

__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]
