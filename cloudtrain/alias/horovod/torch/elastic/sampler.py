"""``horovod.torch.elastic.sampler``."""

from cloudtrain.distributed.torch.elastic import ElasticSampler

__all__ = ["ElasticSampler"]
