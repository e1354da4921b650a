"""Starts the ranks of a host, directly or with torchrun, mpirun, srun, Horovod or another project's launcher."""
