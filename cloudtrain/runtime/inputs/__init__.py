"""Prepares a host before its ranks start: fetches its source, channels and checkpoints, and installs requirements."""
