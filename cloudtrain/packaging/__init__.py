"""Packs a source directory into the archive that a job runs, and the runtime that runs it."""

from cloudtrain.packaging._git import GitState
from cloudtrain.packaging.entry_point import check_entry_point
from cloudtrain.packaging.pack import SourceArchive, pack
from cloudtrain.packaging.zipapp import RUNTIME_FILE, RuntimeArchive, pack_runtime, runtime_sha256

__all__ = [
    "RUNTIME_FILE",
    "GitState",
    "RuntimeArchive",
    "SourceArchive",
    "check_entry_point",
    "pack",
    "pack_runtime",
    "runtime_sha256",
]
