"""Uploads of a host, after its ranks have ended: the model, other outputs, the last checkpoints."""
