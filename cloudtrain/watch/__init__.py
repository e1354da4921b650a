"""Views of jobs that a person watches: none of the core imports them, and each can be deleted."""
