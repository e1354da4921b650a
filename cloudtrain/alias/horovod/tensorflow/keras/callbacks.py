"""``horovod.tensorflow.keras.callbacks``."""

from cloudtrain.distributed.tensorflow.keras.callbacks import *  # noqa: F403
