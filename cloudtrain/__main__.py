"""The entry point of the ``cloudtrain`` program, also as ``python -m cloudtrain``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from cloudtrain._lazy import start_program

ELSEWHERE = ("--instance-type", "--image", "--set")
"""Options of ``cloudtrain submit`` with which a job may run elsewhere than in processes of this machine."""
NOT_ONE_JOB = ("--array", "--dry-run", "--check", "--diff", "--help", "-h")
"""Options with which ``cloudtrain submit`` starts no job, or several."""


INSIDE_A_JOB = {"CLOUDTRAIN_RUN_DIR", "CLOUDTRAIN_CLOCK"}
"""Variables that are set inside a job. The supervisor of another job must not be started with them."""


def needed_supervisor(arguments: Sequence[str]) -> str:
    """The supervisor's module for the job that ``arguments`` submit; empty unless it is clear. Imports little."""
    own = [*arguments, "--"][: [*arguments, "--"].index("--")]
    options = {argument.partition("=")[0] for argument in own}
    if (
        own[:1] != ["submit"]
        or not options.isdisjoint(NOT_ONE_JOB)
        or not INSIDE_A_JOB.isdisjoint(os.environ)
    ):
        return ""
    if not any(argument.endswith(".py") for argument in own):
        return ""
    from cloudtrain.config import is_configured
    from cloudtrain.errors import CloudtrainError
    from cloudtrain.platforms.supervised.early import CONTAINER_SUPERVISOR, LOCAL_SUPERVISOR

    if "--platform" in options:
        is_container = f" {' '.join(own)} ".replace("=", " ").count(" --platform container ")
        return CONTAINER_SUPERVISOR if is_container else ""
    try:
        return LOCAL_SUPERVISOR if options.isdisjoint(ELSEWHERE) and not is_configured() else ""
    except CloudtrainError:  # the command reports it
        return ""


def main() -> None:
    start_program()
    try:
        if supervisor := needed_supervisor(sys.argv[1:]):
            # now, because its imports take as long as those of the command
            from cloudtrain.platforms.supervised.early import start_early

            start_early(supervisor)
        # this import is most of the startup time: Ctrl-C must not show a traceback here either
        from cloudtrain import cli

        cli.main()
    except KeyboardInterrupt:
        sys.stderr.write("\nInterrupted.\n")
        sys.exit(130)  # 128 + SIGINT


if __name__ == "__main__":
    main()
