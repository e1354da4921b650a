"""The entrypoint of every training container: ``python -m cloudtrain.runtime``.

Reads the contract, fetches, installs, launches the ranks, watches them, uploads, and says how it ended.
"""

from __future__ import annotations


def main() -> int:
    """Run this host's part of the job; the exit code of its outcome."""
    from cloudtrain.runtime.entrypoint import main as run

    return run()


__all__ = ["main"]
