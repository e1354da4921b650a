"""The secret of the ranks: from the job, or for ranks of one machine from a file that only their user can read.

It never comes from a ``TCPStore``, which anyone who can reach its port can read. The only exception is ranks on
several machines that were not given a secret: see `cloudtrain.distributed.negotiation.rendezvous`.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from cloudtrain._system.files import READ_REGULAR
from cloudtrain._system.owned import FolderIsOpen
from cloudtrain._system.users import folder_of_user, owns, user_id
from cloudtrain.distributed.errors import CollectiveError
from cloudtrain.errors import StorageError
from cloudtrain.link.secret import RANKS_FILE, RANKS_VARIABLE, derive, fresh_secret, ranks_secret

SECRET_BYTES = 1024
"""The most that is read of a file, which is longer than any secret."""


def find_secret(one_machine: bool, environ: Mapping[str, str] = os.environ) -> str:
    """The secret of the ranks; empty if the ranks are on several machines and were not given one.

    Raises:
        CollectiveError: the file of the user cannot be trusted.
    """
    return ranks_secret(environ) or (_secret_of_user() if one_machine else "")


def session_key(secret: str, purpose: str, session: str) -> bytes:
    """The key for one purpose, from ``init`` to ``shutdown``, so that messages recorded earlier are useless.

    Args:
        session: chosen at random by rank 0. Not a secret: with a wrong one, the ranks do not find one another.
    """
    return hmac.new(derive(secret, purpose), session.encode(), hashlib.sha256).digest()


def private_folder() -> Path:
    """A folder in the folder for temporary files that only this user can access. Raises CollectiveError."""
    try:
        return folder_of_user()
    except (FolderIsOpen, OSError) as error:
        raise CollectiveError(
            f"there is no folder of this user only: {error}",
            hint=f"Set MASTER_ADDR, MASTER_PORT and {RANKS_VARIABLE} for all ranks.",
        ) from None


def _secret_of_user() -> str:
    """The secret that all jobs of this user on this machine share; created by the first."""
    from cloudtrain.storage.state import state_home  # only ranks that no runtime started need it

    try:
        path = state_home() / RANKS_FILE
        return read_private(path) or _create(path)
    except (OSError, StorageError):  # such as a home folder that cannot be written to
        path = private_folder() / RANKS_FILE
        return read_private(path) or _create(path)


def _create(path: Path) -> str:
    """Write a new secret, unless another rank is faster. Returns the secret in the file. Raises OSError."""
    with _temporary(path, fresh_secret()) as temporary, contextlib.suppress(FileExistsError):
        os.link(temporary, path)  # so that the file is complete as soon as it exists
    return read_private(path)


@contextlib.contextmanager
def _temporary(path: Path, text: str) -> Iterator[Path]:
    """A new file next to ``path``. Its name is removed at the end; a link to it stays. Raises OSError."""
    temporary = path.with_name(f"{path.name}.{os.urandom(8).hex()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(text)
        yield temporary
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def read_private(path: Path) -> str:
    """A file's content; empty if there is no file. Raises OSError, or CollectiveError if others could have read it."""
    try:
        descriptor = os.open(path, READ_REGULAR)
    except FileNotFoundError:
        return ""
    except OSError:
        if path.is_symlink():
            raise _untrusted(path) from None
        raise
    with open(descriptor, encoding="ascii", errors="replace") as file:
        status = os.fstat(descriptor)
        secret = file.read(SECRET_BYTES) if stat.S_ISREG(status.st_mode) else ""
    if not secret or not owns(status) or (user_id() >= 0 and status.st_mode & 0o077):
        raise _untrusted(path)
    return secret


def _untrusted(path: Path) -> CollectiveError:
    return CollectiveError(
        f"{path} is not a file that only this user can read, so others may know what it protects",
        hint=f"Remove it, and cloudtrain creates a new one. Or set {RANKS_VARIABLE} to a random text on all ranks.",
    )
