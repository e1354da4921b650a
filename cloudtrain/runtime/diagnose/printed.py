"""Warnings about exceptions in the output of a script that did not end it."""

from __future__ import annotations

from collections.abc import Sequence

from cloudtrain._system.patterns import pattern

_WORKER = pattern(r"(?:^|\] )Process \S+:$")
"""The line with which ``multiprocessing`` begins the traceback of a process."""


def of_ignored_failure(script: str, lines: Sequence[str]) -> str:
    """A warning if a program failed but the shell script that started it ended with exit code 0; otherwise empty."""
    printed = _exception(lines) if script.endswith(".sh") else None
    if not printed:
        return ""
    return (
        f"{script} ended with exit code 0, although a program that it started raised {printed[0]}: "
        f"{printed[1]}. To end the job there, put `set -e` at the top of {script}."
    )


def of_lost_worker(lines: Sequence[str]) -> str:
    """A warning if a process of ``multiprocessing`` failed, for which the script may wait forever; otherwise empty."""
    printed = _exception(lines) if any(map(_WORKER.search, lines)) else None
    return f"a process that the script started ended with {printed[0]}: {printed[1]}" if printed else ""


def _exception(lines: Sequence[str]) -> tuple[str, str, str] | None:
    from cloudtrain.runtime.diagnose.ranks import printed_exception  # few scripts print one

    return printed_exception(lines)
