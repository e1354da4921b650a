"""Samples this host and its GPUs while the job runs: see `cloudtrain.observe.samples`."""
