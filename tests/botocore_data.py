"""Lets botocore parse its data files once per process. Without it each session does, 0.1 s for every client.

A plugin of `conftest`, and for processes that fork others.
"""

from __future__ import annotations

from typing import Any

from botocore.loaders import Loader

_CACHES: dict[tuple[str, ...], dict[Any, Any]] = {}
"""The loaded data, by the folders that botocore searches. No client changes it: those of a session share it."""

_init = Loader.__init__


def _with_shared_cache(self: Loader, *args: Any, **keywords: Any) -> None:
    _init(self, *args, **keywords)
    self._cache = _CACHES.setdefault(tuple(self.search_paths), self._cache)


Loader.__init__ = _with_shared_cache


def load(service: str) -> None:
    """Parse the files of a service now, for the processes to be forked from this one."""
    import boto3

    boto3.Session().client(service, region_name="us-east-1")
