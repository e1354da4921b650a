"""Caches the accounts of access keys, so that most submissions need not query AWS for their account."""

from __future__ import annotations

import hashlib
import os
import re
import time
from contextlib import suppress
from pathlib import Path

from cloudtrain.storage import state_home
from cloudtrain.storage.atomic import write_file

KEPT_SECONDS = 30 * 86400.0
"""How long entries are kept. Keys of sessions expire after hours, and their entries would accumulate."""


class KnownAccounts:
    """The accounts of access keys, in the user's state folder. The account of a key never changes.

    Only a hash of a key is stored. The hash includes the endpoint, which may be that of a simulated AWS: its response
    must not determine the account whose buckets get the user's data later.
    """

    def find(self, access_key: str, endpoint: str) -> str | None:
        with suppress(OSError, ValueError):
            text = _file(access_key, endpoint).read_text("ascii")
            return text if re.fullmatch(r"\d{12}", text) else None
        return None

    def add(self, access_key: str, endpoint: str, account: str) -> None:
        """Store an account. Does nothing on a full disk."""
        file = _file(access_key, endpoint)
        with suppress(OSError):
            write_file(file, account.encode())
            for other in file.parent.iterdir():
                if time.time() - other.stat().st_mtime > KEPT_SECONDS:
                    other.unlink(missing_ok=True)


def _file(access_key: str, endpoint: str) -> Path:
    endpoints = sorted(item for item in os.environ.items() if item[0].startswith("AWS_ENDPOINT_URL"))
    text = repr(
        (access_key, endpoint, endpoints, os.environ.get("AWS_PROFILE"), os.environ.get("AWS_CONFIG_FILE"))
    )
    return state_home() / "accounts" / hashlib.sha256(text.encode()).hexdigest()
