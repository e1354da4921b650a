"""``horovod.tensorflow.keras``."""

from cloudtrain.distributed.tensorflow.keras import *  # noqa: F403
from cloudtrain.distributed.tensorflow.keras import __getattr__ as __getattr__
from horovod.tensorflow.keras import callbacks as callbacks
