"""Arrays over an MPI communicator, by mpi4py: without torch, and without a port that ranks have to know."""
