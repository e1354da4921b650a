"""Checks of this machine and of storage, for platforms whose jobs run here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable

from cloudtrain.platforms.checks import Finding, failed, ok, warning
from cloudtrain.storage import open_store, state_home
from cloudtrain.storage.retry_policy import Patience, using

LITTLE_SPACE = 1 << 30
"""Free disk space in bytes below which the check warns."""


def check_disk() -> Finding:
    home = state_home()
    folder = next(folder for folder in (home, *home.parents) if folder.exists())
    free = shutil.disk_usage(folder).free
    what = f"{free / 1e9:.1f} GB free for the folders of jobs, {home}"
    if not os.access(folder, os.W_OK):
        return failed(f"{folder} cannot be written", "Set CLOUDTRAIN_HOME to another folder.")
    if free < LITTLE_SPACE:
        return warning(what, "Free space there, or set CLOUDTRAIN_HOME to a folder on another disk.")
    return ok(what)


def immediately(check: Callable[[], Finding]) -> Finding:
    """The result of a check that reports unavailable storage rather than waiting for it."""
    with using(Patience(0)):
        return check()


def check_input(name: str, uri: str) -> Finding:
    """Raises StorageError if the channel is missing or empty."""
    from cloudtrain.contract.channels import ChannelInput
    from cloudtrain.runtime.inputs.fetch import locate

    locate(ChannelInput(name, uri))
    return ok(uri)


def check_bucket(uri: str) -> Finding:
    """Raises StorageError if the bucket does not exist or cannot be reached."""
    open_store(uri).stat(".cloudtrain")  # the cheapest request that fails if the bucket is missing
    return ok(f"reached for {uri}")
