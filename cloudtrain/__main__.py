"""The entry point of the ``cloudtrain`` program, also as ``python -m cloudtrain``."""

from __future__ import annotations

import sys


def main() -> None:
    try:
        # most of the start: Ctrl-C must not show a traceback here either
        from cloudtrain import cli

        cli.main()
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)  # 128 + SIGINT


if __name__ == "__main__":
    main()
