"""``horovod.tensorflow.elastic``."""

from cloudtrain.distributed.tensorflow.elastic import *  # noqa: F403
