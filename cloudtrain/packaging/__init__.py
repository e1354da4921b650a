"""Packs a source directory into the archive that a job runs, and the runtime that runs it."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.packaging._git import GitState
    from cloudtrain.packaging._pack import SourceArchive, pack
    from cloudtrain.packaging.entry_point import check_entry_point
    from cloudtrain.packaging.zipapp import RUNTIME_FILE, RuntimeArchive, pack_runtime, runtime_sha256

# lazy: the supervisor of a job in containers only needs the bundled runtime
__getattr__, __dir__ = lazy(
    __name__,
    {
        "GitState": "cloudtrain.packaging._git",
        "RUNTIME_FILE": "cloudtrain.packaging.zipapp",
        "RuntimeArchive": "cloudtrain.packaging.zipapp",
        "SourceArchive": "cloudtrain.packaging._pack",
        "check_entry_point": "cloudtrain.packaging.entry_point",
        "pack": "cloudtrain.packaging._pack",
        "pack_runtime": "cloudtrain.packaging.zipapp",
        "runtime_sha256": "cloudtrain.packaging.zipapp",
    },
)

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
