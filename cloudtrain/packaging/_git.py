"""The git state of a source directory, if it is in a repository and git is installed."""

from __future__ import annotations

import os
import re
import subprocess
import time
from dataclasses import field
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain.packaging._git_command import LIMIT, run_git
from cloudtrain.packaging._secrets import secret_contents, secret_name


@dataclass(frozen=True)
class GitState:
    """``commit`` is None before the first commit; ``branch`` is None on a detached HEAD."""

    commit: str | None
    branch: str | None
    dirty: bool
    """Whether files of the source directory differ from the commit, including new files."""
    diff: str = field(default="", repr=False)
    """The changes to tracked files, except files that look like secrets."""

    @property
    def version(self) -> str:
        """The commit, with the suffix ``-dirty`` if files differ from it; empty before the first commit."""
        return f"{self.commit}-dirty" if self.commit and self.dirty else self.commit or ""


def is_in_repository(folder: Path) -> bool:
    """Whether ``folder`` looks like a part of a repository. Does not need git."""
    return any((parent / ".git").exists() for parent in (folder.absolute(), *folder.absolute().parents))


def git_state(folder: Path) -> GitState | None:
    """The state of the repository that ``folder`` is in, or None."""
    if not is_in_repository(folder):
        return None
    deadline = time.monotonic() + LIMIT
    try:
        status = run_git(folder, deadline, "status", "--porcelain=v2", "--branch", "--", ".")
        lines = status.splitlines()
        head = dict(line[2:].split(" ", 1) for line in lines if line.startswith("# "))
        commit = head["branch.oid"] if head["branch.oid"] != "(initial)" else None
        branch = head["branch.head"] if head["branch.head"] != "(detached)" else None
        changed = [line[0] for line in lines if not line.startswith("#")]
        diff = ""
        if commit and set(changed) - {"?"}:
            options = ("--no-color", "--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/")
            diff = _without_secrets(run_git(folder, deadline, "diff", *options, "HEAD", "--", "."))
        return GitState(commit, branch, bool(changed), diff)
    except (OSError, subprocess.SubprocessError):
        return None


def _without_secrets(diff: str) -> str:
    """The diff without files whose name, or whose old or new lines, look like a secret."""
    files = re.split(r"^(?=diff --git )", diff, flags=re.MULTILINE)
    return "".join(file for file in files if not _looks_secret(file))


def _looks_secret(file_diff: str) -> bool:
    names = re.findall(r"^(?:---|\+\+\+) \"?[ab]/(.*?)\"?\t?$", file_diff, flags=re.MULTILINE)
    # Remove the diff's markers, so that a key that spans several lines is found.
    content = re.sub(r"^[-+ ]", "", file_diff, flags=re.MULTILINE)
    name = names[-1] if names else ""
    return any(map(secret_name, names)) or any(secret_contents(name, os.fsencode(content)))
