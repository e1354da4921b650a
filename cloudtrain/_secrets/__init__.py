"""Recognises secrets, by their name, in a URL and by the format of the value, and hides them.

Everything that shows, stores or packs text uses this package, in the job too.
"""
