"""``horovod.keras.elastic``."""

from cloudtrain.distributed.keras.elastic import *  # noqa: F403
