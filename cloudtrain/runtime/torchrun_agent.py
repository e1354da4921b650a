"""``torchrun`` whose ranks' exit codes can be read as they come.

Runs torch's own elastic launcher in this process, and leaves the exit code of every rank that has ended, and is
not to be started again, where the runtime looks for it (`write_code`).
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from cloudtrain.runtime.parent_death import die_with_parent
from cloudtrain.runtime.run_folder import stopping_path, write_code


class _Reported(subprocess.Popen):  # type: ignore[type-arg]
    """Tells how the process ended at the moment in which torch's agent learns it, by `poll` or `wait`."""

    def __init__(self, *arguments: Any, env: Any = None, **options: Any) -> None:
        told = env or {}
        self._local_rank = told.get("LOCAL_RANK")
        if self._local_rank is not None and os.path.exists(stopping_path(os.environ["CLOUDTRAIN_RUN_DIR"])):
            sys.exit(128 + signal.SIGTERM)
        super().__init__(*arguments, env=env, **options)  # type: ignore[call-overload]
        self._is_last = told.get("TORCHELASTIC_RESTART_COUNT") == told.get("TORCHELASTIC_MAX_RESTARTS")
        self._told = False

    def poll(self) -> int | None:
        code = super().poll()
        if code is not None:
            self._report(code)
        return code

    def wait(self, timeout: float | None = None) -> int:
        code: int = super().wait(timeout)
        self._report(code)
        return code

    def _report(self, code: int) -> None:
        if self._local_rank is not None and self._is_last and not self._told:
            self._told = True
            write_code(os.environ["CLOUDTRAIN_RUN_DIR"], int(self._local_rank), code)


def main(arguments: list[str]) -> None:
    die_with_parent()
    subprocess.Popen = _Reported  # type: ignore[misc]
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError:
        sys.exit(1)  # what it would print, our report says better


if __name__ == "__main__":
    main(sys.argv[1:])
