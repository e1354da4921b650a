"""``horovod.tensorflow.keras.elastic``."""

from cloudtrain.distributed.tensorflow.keras.elastic import *  # noqa: F403
