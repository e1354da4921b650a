"""``horovod.torch``."""

from cloudtrain.distributed.torch import *  # noqa: F403
from horovod.common.util import check_extension as check_extension
from horovod.torch import elastic as elastic
from horovod.torch.compression import Compression as Compression
