"""Prepares a host before its ranks start: source, channels, checkpoints, requirements."""
