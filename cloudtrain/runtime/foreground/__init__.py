"""Runs a program as ranks in the foreground, on this machine or on several, for ``cloudtrain run``."""
