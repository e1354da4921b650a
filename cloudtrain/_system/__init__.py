"""Hides the differences between Linux, macOS and Windows behind common names.

Code that is bundled with the job uses these modules too. Every rank imports this package, so it imports nothing itself.
"""
