"""Starts the ranks of a host: by themselves, or with torchrun, mpirun, srun, Horovod or another project's launcher."""
