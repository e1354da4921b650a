"""Hints for the most common failures of scripts: patterns of failures, with the remedies.

The page docs/reference/hints.md lists them all.
"""
