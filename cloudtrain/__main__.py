"""The entry point of the ``cloudtrain`` program, also as ``python -m cloudtrain``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cloudtrain._lazy import defer

ELSEWHERE = (
    "--platform",
    "--instance-type",
    "--image",
    "--set",
    "--array",
    "--dry-run",
    "--check",
    "--diff",
    "--help",
    "-h",
)
"""Options of ``cloudtrain submit`` with which a job may not run as processes of this machine, or not at all."""


INSIDE_A_JOB = {"CLOUDTRAIN_RUN_DIR", "CLOUDTRAIN_CLOCK"}
"""Variables that the supervisor of another job must not start with."""


def runs_here(arguments: Sequence[str]) -> bool:
    """Whether they clearly submit a script as processes of this machine. Imports little."""
    own = [*arguments, "--"][: [*arguments, "--"].index("--")]
    options = {argument.partition("=")[0] for argument in own}
    if own[:1] != ["submit"] or not options.isdisjoint(ELSEWHERE) or not INSIDE_A_JOB.isdisjoint(os.environ):
        return False
    from cloudtrain.config import is_configured
    from cloudtrain.errors import CloudtrainError

    try:
        return any(argument.endswith(".py") for argument in own) and not is_configured()
    except CloudtrainError:  # the command reports it
        return False


def main() -> None:
    defer("inspect")
    try:
        if runs_here(sys.argv[1:]):
            # its imports take as long as those of the command
            from cloudtrain.platforms.supervised.early import LOCAL_SUPERVISOR, start_early

            start_early(LOCAL_SUPERVISOR)
        # most of the start: Ctrl-C must not show a traceback here either
        from cloudtrain import cli

        cli.main()
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)  # 128 + SIGINT


if __name__ == "__main__":
    main()
