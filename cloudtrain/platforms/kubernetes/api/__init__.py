"""The API of a Kubernetes cluster: requests, errors as sentences, and watches that survive what a network does.

Nothing here knows about jobs of cloudtrain, except `job_watch`. lightkube is loaded when a connection is made.
"""
