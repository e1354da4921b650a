"""Starts a runtime on a machine: on a node of a scheduler, in a container, or at the other end of a connection."""
