"""The question that a job asks its hosts, from the job's request."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloudtrain._system.owned import FolderIsOpen, own_place
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import PlatformError
from cloudtrain.platforms.hosts.host_list import parse_hosts
from cloudtrain.platforms.hosts.probe import Question
from cloudtrain.platforms.hosts.transfer import local_paths


def question_of(body: Mapping[str, Any], modules: Sequence[str] = ()) -> Question:
    """The question of the job with the request ``body``.

    Args:
        modules: those that the script imports.
    """
    settings = request_settings(body)
    return Question(
        parse_hosts(body["hosts"]),
        body.get("ssh", ["ssh"]),
        body["remote_python"],
        folder=body.get("folder", ""),
        paths=local_paths(settings),
        modules=modules,
        timeout=max(settings.host_timeout, 15.0),
    )


@contextlib.contextmanager
def with_token(question: Question) -> Iterator[Question]:
    """``question`` with a new file in the shared folder, if the job has one: hosts that see it see the same folder.

    Raises PlatformError if this machine cannot write there, or another user could replace what it writes.
    """
    if not question.folder:
        yield question
        return
    with safe_folder():
        own_place(question.folder)
    token = os.urandom(16).hex()
    path = Path(question.folder, f".cloudtrain-{token[:8]}")
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(token)
    except OSError as error:
        raise PlatformError(
            f"platform_options.folder: {question.folder} cannot be written: {error.strerror}",
            hint="Name a folder that exists on this machine and on all hosts.",
        ) from None
    try:
        yield replace(question, token_file=path.name, token=token)
    finally:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def safe_folder() -> Iterator[None]:
    """Report a folder of the shared one that another user could replace. Raises PlatformError."""
    try:
        yield
    except FolderIsOpen as error:
        raise PlatformError(
            f"platform_options.folder: {error}; they could run code as you", hint=error.hint
        ) from None
    except OSError as error:
        raise PlatformError(
            f"platform_options.folder: {error.filename} cannot be used: {error.strerror}",
            hint="Name a folder that exists on this machine and on all hosts.",
        ) from None
