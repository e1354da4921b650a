"""Which entry points other than Python files are programs."""

from __future__ import annotations

import os

START_BYTES = 1024
"""The bytes of a file that the functions of this module need."""

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
