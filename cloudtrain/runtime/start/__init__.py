"""How a runtime gets onto a machine: on a node of a scheduler, in a container, at the other end of a connection."""
