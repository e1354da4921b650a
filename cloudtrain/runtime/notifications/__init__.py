"""Notifications of what became of a job: to whom, what they contain, and how they are sent until they arrive."""
