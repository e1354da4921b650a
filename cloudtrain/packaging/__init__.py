"""Packs a source directory into the archive that a job runs, and the runtime that runs it."""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.packaging._git import GitState as GitState
    from cloudtrain.packaging._pack import SourceArchive as SourceArchive, pack as pack
    from cloudtrain.packaging.entry_point import check_entry_point as check_entry_point
    from cloudtrain.packaging.zipapp import (
        RUNTIME_FILE as RUNTIME_FILE,
        RuntimeArchive as RuntimeArchive,
        pack_runtime as pack_runtime,
        runtime_sha256 as runtime_sha256,
    )

# lazy, because the supervisor of a job in containers needs only the bundled runtime
__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.packaging._git": "GitState",
        "cloudtrain.packaging._pack": "SourceArchive pack",
        "cloudtrain.packaging.entry_point": "check_entry_point",
        "cloudtrain.packaging.zipapp": "RUNTIME_FILE RuntimeArchive pack_runtime runtime_sha256",
    },
)
