"""Starts and supervises a job on the nodes that Slurm has given it."""
