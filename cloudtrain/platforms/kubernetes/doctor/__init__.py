"""Checks for problems that would make a job fail, or wait forever, on a Kubernetes cluster."""

from cloudtrain.platforms.kubernetes.doctor.checks import checks

__all__ = ["checks"]
