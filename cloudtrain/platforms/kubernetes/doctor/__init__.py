"""Checks for problems that would make a job fail, or wait forever, on a Kubernetes cluster."""
