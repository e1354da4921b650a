"""The life of a job on Kubernetes: why it waits, what it does, how it ended, how to stop it.

All modules except `stop` and `life` take the objects of a job as data, and send no requests.
"""
