"""Hints for the commonest failures of scripts: patterns and what to do, one subject in each file.

The page docs/reference/hints.md lists them all.
"""
