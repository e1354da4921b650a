"""``horovod.torch.elastic``."""

from cloudtrain.distributed.torch.elastic import *  # noqa: F403
