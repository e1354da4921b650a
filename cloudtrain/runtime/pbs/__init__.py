"""Starts and supervises a job on the nodes that PBS Professional, Torque or Cobalt has given it."""
