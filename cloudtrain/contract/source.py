"""The source of a job: its maximum size, and which entry points other than Python files are programs."""

from __future__ import annotations

import os

from cloudtrain._dataclass import dataclass

GB = 1_000_000_000


@dataclass(frozen=True)
class SourceLimits:
    """The limits for a source. A larger one is a mistake, or an archive that is made to fill a disk."""

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


START_BYTES = 1024
"""The number of bytes at the start of a file that the functions of this module need."""

_SHELL_SUFFIXES = (".sh", ".bash")


def is_executable(start: bytes) -> bool:
    """Whether a file that begins with ``start`` names its interpreter (``#!``), or is an ELF executable."""
    return start.startswith((b"#!", b"\x7fELF"))


def is_program(name: str, start: bytes) -> bool:
    """Whether the file ``name`` is an executable or a shell script, judging by its name and its first bytes.

    >>> is_program("train.sh", b"echo"), is_program("train.pl", b"#!/usr/bin/perl"), is_program("README", b"# Notes")
    (True, True, False)
    """
    suffix = os.path.splitext(name)[1].lower()
    return is_executable(start) or (suffix in _SHELL_SUFFIXES and b"\0" not in start)
