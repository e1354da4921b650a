"""Views of jobs for people to watch. The core imports none of them, so each can be deleted."""
