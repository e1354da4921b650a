"""The entrypoint of every training container: ``python -m cloudtrain.runtime``.

Reads the contract, fetches data, installs requirements, launches and watches the ranks, uploads outputs, and reports
the outcome.
"""

from __future__ import annotations


def main() -> int:
    """Run this host's part of the job; returns the exit code of its outcome."""
    from cloudtrain.runtime.entrypoint import main as run

    return run()


__all__ = ["main"]
