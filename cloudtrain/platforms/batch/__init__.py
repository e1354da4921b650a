"""Code that the schedulers and host lists share: shells, job folders on a cluster, the step on the first node."""
