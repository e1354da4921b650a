"""``horovod.keras``."""

from cloudtrain.distributed.keras import *  # noqa: F403
from horovod.keras import callbacks as callbacks
