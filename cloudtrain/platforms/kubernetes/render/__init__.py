"""Renders a job as the objects of Kubernetes' API that run it."""
