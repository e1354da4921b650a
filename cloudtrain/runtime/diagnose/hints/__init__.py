"""Hints for the commonest failures of scripts: patterns and what to do.

The page docs/reference/hints.md lists them all.
"""
