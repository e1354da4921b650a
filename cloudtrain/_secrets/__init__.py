"""Recognises secrets by their names, in URLs and by the format of their values, and hides them.

All code that shows, stores or packs text uses this package, in the job too.
"""
