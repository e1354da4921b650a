"""``horovod.torch.elastic.state``."""

from cloudtrain.distributed.torch.elastic import TorchState

__all__ = ["TorchState"]
