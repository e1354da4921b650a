"""The life of a job on Kubernetes: why it waits, its state, its outcome, and how to stop it.

All modules except `stop` and `job_watch` take the objects of a job as data, and send no requests.
"""
