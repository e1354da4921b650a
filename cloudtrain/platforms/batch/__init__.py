"""What schedulers and host lists share: where commands run, job folders on a cluster, the step on the first node."""
