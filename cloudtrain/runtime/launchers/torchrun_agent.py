"""A ``torchrun`` that reports the exit code of each rank as soon as the rank ends.

Runs torch's elastic agent in this process. When a rank has ended and will not be restarted, its exit code is written to
the host's run folder (`write_code`).
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from cloudtrain.contract.preemption import SignalsOfAgent
from cloudtrain.runtime.parent_death import die_with_runtime
from cloudtrain.runtime.run_folder import stopping_path, write_code

LOOPBACK = "127.0.0.1"


def _listen_on_loopback() -> None:
    """Make the agent's store listen only on the loopback interface if its address is there. torch listens on all."""
    from torch.distributed.elastic.rendezvous import static_tcp_rendezvous

    rendezvous: Any = static_tcp_rendezvous
    plain = rendezvous.TCPStore

    def store(host: str, port: int, world_size: int, is_master: bool, *arguments: Any, **options: Any) -> Any:
        if is_master and host == LOOPBACK:
            listener = socket.create_server((host, port), backlog=1024)
            try:
                own = plain(
                    host,
                    port,
                    world_size,
                    is_master,
                    *arguments,
                    master_listen_fd=listener.fileno(),
                    **options,
                )
            except TypeError:  # PyTorch 1 has no such parameter
                listener.close()
            else:
                listener.detach()
                return own
        return plain(host, port, world_size, is_master, *arguments, **options)

    rendezvous.TCPStore = store


class _ReportingPopen(subprocess.Popen):  # type: ignore[type-arg]
    """Writes the exit code as soon as `poll` or `wait` returns it to torch's agent."""

    def __init__(self, *arguments: Any, env: Any = None, **options: Any) -> None:
        variables = env or {}
        self._local_rank = variables.get("LOCAL_RANK")
        if self._local_rank is not None and os.path.exists(stopping_path(os.environ["CLOUDTRAIN_RUN_DIR"])):
            sys.exit(128 + signal.SIGTERM)
        super().__init__(*arguments, env=env, **options)  # type: ignore[call-overload]
        restarts, most = (variables.get(f"TORCHELASTIC_{name}") for name in ("RESTART_COUNT", "MAX_RESTARTS"))
        self._is_last = restarts == most
        self._is_reported = False

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
        if self._local_rank is not None and self._is_last and not self._is_reported:
            self._is_reported = True
            write_code(os.environ["CLOUDTRAIN_RUN_DIR"], int(self._local_rank), code)


def _leave_sigterm_to_ranks() -> None:
    """If SIGTERM is a notice to ranks, end them with SIGKILL, and ignore it here, as the runtime ends this process."""
    from torch.distributed.elastic.multiprocessing import api

    module: Any = api
    handler: Any = module.SubprocessHandler  # its own module is of PyTorch 2.3 and later
    plain_close, plain_signal = handler.close, getattr(module, "_terminate_process_handler", None)
    if plain_signal is None:
        return
    signals = SignalsOfAgent(Path(os.environ["CLOUDTRAIN_RUN_DIR"]))
    signals.offer()

    def close(self: Any, death_sig: Any = None) -> None:
        is_left = death_sig == signal.SIGTERM and signals.are_notices
        plain_close(self, signal.SIGKILL if is_left else death_sig)

    def on_signal(number: int, frame: Any) -> None:
        if number != signal.SIGTERM or not signals.are_notices:
            plain_signal(number, frame)

    handler.close, module._terminate_process_handler = close, on_signal


def main(arguments: list[str]) -> None:
    die_with_runtime()
    subprocess.Popen = _ReportingPopen  # type: ignore[misc]
    _listen_on_loopback()
    _leave_sigterm_to_ranks()
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import parse_args, run

    try:
        run(parse_args(arguments))  # type: ignore[no-untyped-call]
    except ChildFailedError:
        sys.exit(1)  # without its message: the job's failure report is more precise


if __name__ == "__main__":
    main(sys.argv[1:])
