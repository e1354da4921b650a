"""Saves the checkpoints that the runtimes of a job have left in the memory of this machine when the job ends.

A runtime leaves them to the next attempt while the storage does not answer, or because it was killed. If no attempt
follows, other processes commit them, for all hosts in parallel, because the storage may never answer and needs the
job's variables. Checkpoints that the storage does not accept are written to disk.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Callable

from cloudtrain.contract import Paths
from cloudtrain.errors import Unreachable
from cloudtrain.runtime.checkpoint_memory import STALE_SECONDS, left_commit, remove_memory

AWAY_SECONDS = 10.0
"""How long to try unavailable storage. Until then, the job has no outcome."""
LONGEST_SECONDS = 180.0
"""How long to try storage that answers slowly."""
QUIET_SECONDS = 3.0
"""After this time, a message shows what the end of the job waits for."""
Say = Callable[[str], None]


def save_left_memory(
    hosts: Sequence[Paths], run_id: str, environ: Mapping[str, str], grace: float, say: Say, warn: Say
) -> None:
    """Save the checkpoints that exist only in the memory of hosts on this machine, and free that memory.

    Args:
        hosts: the folders of the hosts.
        run_id: the identity of the job.
        environ: the variables for access to the storage.
        grace: how long to try unavailable storage, at most.
        say: called with each sentence about a saved checkpoint.
        warn: called with each sentence about a checkpoint that could not be saved.
    """
    from concurrent.futures import ThreadPoolExecutor, wait  # brings logging along

    with ThreadPoolExecutor(max(len(hosts), 1), "left-memory") as pool:
        savers = [_Saver(paths, run_id, environ, min(grace, AWAY_SECONDS)) for paths in hosts]
        futures = [pool.submit(saver.save) for saver in savers]
        if wait(futures, QUIET_SECONDS).not_done:
            say(f"saving the checkpoints that were left in memory, for up to {LONGEST_SECONDS:.0f} s")
        wait(futures)
    for saver in savers:
        for is_good, sentence in saver.sentences:
            (say if is_good else warn)(sentence)


class _Saver:
    """Saves what one host has left. It runs in a thread, so it collects its messages in `sentences`."""

    def __init__(self, paths: Paths, run_id: str, environ: Mapping[str, str], seconds: float) -> None:
        self._paths, self._run_id, self._environ, self._seconds = paths, run_id, environ, seconds
        self.sentences: list[tuple[bool, str]] = []

    def save(self) -> None:
        with contextlib.suppress(OSError):
            remove_memory(self._paths, self._save)

    def _save(self, folder: Path) -> bool:
        from cloudtrain.runtime.commit_process import commit_in_process

        def say(is_good: bool, sentence: str) -> None:
            self.sentences.append((is_good, sentence))

        problem = ""
        try:
            request = left_commit(folder, self._run_id, self._paths.base, self._seconds)
            try:
                problem = commit_in_process(request, self._environ, say, LONGEST_SECONDS)
            except Unreachable as error:
                without = request._replace(given_up=error.message)
                problem = commit_in_process(without, self._environ, say, LONGEST_SECONDS)
        except OSError as error:  # Unreachable, too
            problem = str(error)
        if problem:
            warning = (
                f"the last checkpoint is left in {folder}, in the memory of this machine: {problem}. A job that starts "
                f"here in {STALE_SECONDS / 3600:.0f} h or later removes it"
            )
            say(False, warning)
        return not problem
