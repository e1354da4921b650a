"""Finds out why a rank ended or hangs, and reports the class of the failure and a hint."""
