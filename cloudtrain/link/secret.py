"""The job secret: random for each job, given only to the runtimes of its hosts, and never shown.

No secret crosses the network. Each use has its own key, derived from the secret: a process that has one key cannot
pretend to have another. The ranks have the key of the ranks, and cannot command the runtimes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

VARIABLE = "CLOUDTRAIN_SECRET"
"""The job secret, for the runtime, which removes the variable from the environment of all processes that it starts."""

RANKS_VARIABLE = "CLOUDTRAIN_RANKS_KEY"
"""The secret of the ranks, for ranks that no runtime started. See `ranks_secret`."""

RANKS_FILE = "ranks-key"
"""The secret of the ranks in the host's run folder, readable by its owner only."""

PURPOSES = ("control", "spawn", "tls", "ranks", "store", "objects", "identity", "copies", "places")


def fresh_secret() -> str:
    """A new secret: 32 random bytes, as hexadecimal digits."""
    return os.urandom(32).hex()


def derive(secret: str, purpose: str, attempt: int = 0) -> bytes:
    """The key for one purpose: 32 bytes.

    Args:
        secret: the job secret, or the secret of the ranks.
        purpose: one of `PURPOSES`.
        attempt: the job's attempt. Leftover processes of an earlier attempt have other keys.
    """
    if purpose not in PURPOSES:
        raise ValueError(f"there is no key for {purpose!r}")
    import hashlib  # with OpenSSL, which a run on one machine does not need
    import hmac

    return hmac.new(secret.encode(), f"cloudtrain {purpose} {attempt}".encode(), hashlib.sha256).digest()


def write_ranks_secret(run: str | os.PathLike[str], secret: str) -> None:
    """Write the secret of the ranks to the run folder, for `ranks_secret`."""
    descriptor = os.open(os.path.join(run, RANKS_FILE), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(secret)


def ranks_secret(environ: Mapping[str, str]) -> str:
    """The secret of the ranks: derive the keys for ``ranks``, ``store`` and ``objects`` from it.

    The runtime writes it to the run folder, to keep it out of the environment of the script. Ranks that other launchers
    start get it from `RANKS_VARIABLE` instead. Empty if there is none.
    """
    given = environ.get(RANKS_VARIABLE, "")
    folder = environ.get("CLOUDTRAIN_RUN_DIR")
    if given or not folder:
        return given
    try:
        with open(os.path.join(folder, RANKS_FILE)) as file:
            return file.read()
    except OSError:
        return ""
