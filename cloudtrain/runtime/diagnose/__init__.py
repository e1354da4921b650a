"""Finds out why a rank ended or hangs: the class of the failure, and a hint."""
