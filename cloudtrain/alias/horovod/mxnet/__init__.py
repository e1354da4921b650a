"""``horovod.mxnet``."""

from cloudtrain.distributed.mxnet import *  # noqa: F403
from horovod.common.util import check_extension as check_extension
from horovod.mxnet.compression import Compression as Compression
