"""``horovod.tensorflow.keras``."""

from cloudtrain.distributed.tensorflow.keras import *  # noqa: F403
from horovod.tensorflow.keras import callbacks as callbacks
