"""Writes the files that a command creates: all of them, or none."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import click


def write_new_files(contents: Mapping[Path, bytes]) -> list[Path]:
    """Write each content to its path, and create missing folders. Returns the paths.

    Raises:
        UsageError: one of the files exists.
        ClickException: one of them cannot be written. No new file remains.
    """
    made: list[Path] = []
    try:
        for path in contents:
            if path.exists() or path.is_symlink():
                raise click.UsageError(f"{path} exists already. Name another folder, or remove it.")
        for path, content in contents.items():
            for folder in reversed([folder for folder in path.parents if not folder.exists()]):
                folder.mkdir()
                made.append(folder)
            with path.open("xb") as file:
                made.append(path)
                file.write(content)
    except OSError as error:
        for one in reversed(made):
            with suppress(OSError):
                one.rmdir() if one.is_dir() else one.unlink()
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        hint = "Free space there, or name a folder on another disk." if full else "Name another folder."
        raise click.ClickException(f"{path} cannot be written: {error.strerror}\n  {hint}") from error
    return [*contents]
