"""``horovod.common.elastic``."""

from cloudtrain.distributed.torch.elastic import ObjectState, State

__all__ = ["ObjectState", "State"]
