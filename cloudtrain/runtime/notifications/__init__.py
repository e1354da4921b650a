"""Notifications about a job: to whom they are sent, what they contain, and how they are retried until they arrive."""
