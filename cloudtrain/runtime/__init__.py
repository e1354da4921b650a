"""The entrypoint of every training container: ``python -m cloudtrain.runtime``.

Reads the contract, fetches, installs, launches the ranks, watches them, uploads, and says how it ended.
"""

from __future__ import annotations


def main() -> None:
    """Run this host's part of the job and exit with its code."""
    from cloudtrain.runtime.main import main as run

    run()


__all__ = ["main"]
