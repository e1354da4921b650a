"""The differences between Linux, macOS and Windows, each under one name: callers need not know the system.

Code that is bundled with the job uses these modules too. Every rank imports this package, so it imports nothing itself.
"""
