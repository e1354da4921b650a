"""``horovod.keras.callbacks``."""

from cloudtrain.distributed.keras.callbacks import *  # noqa: F403
