"""The gradients of an optimizer: summed over ranks in buckets during the backward pass."""
