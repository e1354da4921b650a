"""Uploads the model, the other outputs and the last checkpoints of a host after its ranks have ended."""
