"""``horovod.keras``."""

from cloudtrain.distributed.keras import *  # noqa: F403
from cloudtrain.distributed.keras import __getattr__ as __getattr__
from horovod.keras import callbacks as callbacks
