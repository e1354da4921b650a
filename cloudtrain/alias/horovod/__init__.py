"""Horovod's names for cloudtrain's collectives: a script that was written for Horovod runs unchanged.

    import horovod.torch as hvd

The folder above stands on the path of cloudtrain's ranks, behind everything else: where the real Horovod is
installed, that one is found.
"""

__version__ = "0.28.1+cloudtrain"
