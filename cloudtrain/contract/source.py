"""How large the source of a job may be, packed and unpacked."""

from __future__ import annotations

from dataclasses import dataclass

GB = 1_000_000_000


@dataclass(frozen=True)
class SourceLimits:
    """The most that a source may have. A larger one is a mistake, or an archive that is made to fill a disk."""

    size: int = 10 * GB
    """The bytes of all files, unpacked."""
    files: int = 200_000
    """The files, folders and links."""

    def exceeded(self, size: int, files: int) -> tuple[str, str] | None:
        """How a source of this size is too large, and the field that sets this limit; None if it is not."""
        if size > self.size:
            return f"more than {self.size / GB:g} GB of files", "max_source_size"
        if files > self.files:
            return f"more than {self.files:,} files and folders", "max_source_files"
        return None


DEFAULT_LIMITS = SourceLimits()
