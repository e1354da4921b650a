"""``horovod.tensorflow``."""

from cloudtrain.distributed.tensorflow import *  # noqa: F403
from cloudtrain.distributed.tensorflow import __getattr__ as __getattr__
from horovod.common.util import check_extension as check_extension
from horovod.tensorflow import util as util
from horovod.tensorflow.compression import Compression as Compression
from horovod.tensorflow.util import _executing_eagerly as _executing_eagerly
