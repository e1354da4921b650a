"""Horovod's module names for cloudtrain's collectives: a script written for Horovod runs unchanged.

    import horovod.torch as hvd

In cloudtrain's ranks, the parent folder is the last entry of ``sys.path``. The real Horovod takes precedence where
it is installed.
"""

__version__ = "0.28.1+cloudtrain"
