"""The background process that controls a sweep. Its standard input is a socket, which provides the sweep's name."""

from __future__ import annotations

import os
import socket
import sys

from cloudtrain.contract.text import one_line
from cloudtrain.errors import CloudtrainError
from cloudtrain.sweep.controller import control
from cloudtrain.sweep.journal import LOG, Journal


def main() -> None:
    with socket.socket(fileno=os.dup(0)) as connection:
        name = connection.makefile("r").readline().strip()
        try:
            journal = Journal.named(name)
            owner = journal.owned()
            owner.__enter__()
        except CloudtrainError as error:
            connection.sendall(f"{one_line(error)}\n".encode())
            return
        connection.sendall(b"ok\n")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(journal.folder / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    try:
        control(journal)
    except CloudtrainError as error:
        print(f"the sweep cannot continue: {error}", flush=True)  # noqa: T201
    finally:
        owner.__exit__(*sys.exc_info())


if __name__ == "__main__":
    main()
