"""``horovod.mxnet.compression``."""

from cloudtrain.distributed.mxnet import Compression, Compressor

NoneCompressor, FP16Compressor = Compression.none, Compression.fp16

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]
