"""Starts and supervises a job on the nodes that PBS Professional, Torque, Cobalt or LSF has given it."""
