"""Clones the repository of ``git_config`` with the user's own git, and finds the source of a job in it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cloudtrain.errors import InvalidJob, InvalidSource, nearest
from cloudtrain.packaging.git_config import GitConfig, read_git_config

_NOT_INHERITED = re.compile(
    "GIT_(TRACE.*|CURL_VERBOSE|DIR|WORK_TREE|INDEX_FILE|PREFIX|COMMON_DIR|NAMESPACE|SHALLOW_FILE|OBJECT_DIRECTORY"
    "|ALTERNATE_OBJECT_DIRECTORIES|ASKPASS)|SSH_ASKPASS.*"
)
"""Variables that make git prompt on a screen, print the data it sends, or use another repository, as in a hook."""

_QUIET = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS_REQUIRE": "never",
    "GCM_INTERACTIVE": "never",
}

_HELPER = (
    '!f() { test "$1" = get && '
    'printf \'username=%s\\npassword=%s\\n\' "$CLOUDTRAIN_GIT_USERNAME" "$CLOUDTRAIN_GIT_PASSWORD"; }; f'
)
"""Passes the credentials to git from variables, so that the list of processes shows only their names."""

_FULL_COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")

_HINTS = (
    (
        r"Authentication failed|could not read Username|could not read Password|prompts disabled|error: 40[13]",
        "Pass a token: git_config={'repo': ..., 'token': '...'}, or log in with git's credential helper.",
    ),
    (
        r"Permission denied \(|publickey",
        "Load your key into ssh-agent (ssh-add), or use an https:// URL with a token.",
    ),
    (r"Host key verification failed", "Connect once with ssh, to accept the key of the host."),
    (
        r"couldn't find remote ref|unknown revision|Needed a single revision|did not match any",
        "Check branch and commit.",
    ),
    (
        r"not found|does not appear to be a git repository|does not exist",
        "Check repo. A private repository needs a token or a key.",
    ),
    (
        r"dubious ownership",
        "The folder belongs to another user: git config --global --add safe.directory FOLDER.",
    ),
    (
        r"Could not resolve|Failed to connect|Connection|timed out|too slow",
        "Check the network, its proxy, and the name of the host.",
    ),
)


@contextmanager
def cloned(config: Any, fields: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The ``fields`` of a job, with paths in a clone of the repository, which is removed afterwards.

    ``entry_point``, ``source_dir`` and ``dependencies`` are relative to the repository, ``entry_point`` to
    ``source_dir`` if there is one.

    Args:
        config: ``git_config``, for `read_git_config`.

    Raises:
        InvalidJob: ``config`` or a path is wrong.
        InvalidSource: git cannot clone the repository, or a path is not in it.
    """
    read = read_git_config(config)
    if not fields.get("entry_point"):
        raise InvalidJob("git_config: needs an entry_point", hint="Name a script of the repository.")
    folder = Path(tempfile.mkdtemp(prefix="cloudtrain-git-"))
    try:
        _clone(read, folder)
        yield {**fields, **_paths(folder.resolve(), fields)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _clone(config: GitConfig, folder: Path) -> None:
    """Check out the files of one commit, without history if the server can leave it out. Raises InvalidSource."""
    git = _Git(config, folder)
    git.run("init", "--quiet", "--template=")
    wanted = config.commit or config.branch or "HEAD"
    is_short = config.commit is not None and not _FULL_COMMIT.fullmatch(config.commit)
    if is_short or git.fails("fetch", "--quiet", "--depth=1", "--no-tags", "--", config.repo, wanted):
        if config.commit is None:
            git.run("fetch", "--quiet", "--no-tags", "--", config.repo, wanted)
        else:
            everything = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
            git.run("fetch", "--quiet", "--", config.repo, *everything)
            wanted = git.run("rev-parse", "--verify", "--quiet", f"{config.commit}^{{commit}}").strip()
            git.run("checkout", "--quiet", "--detach", wanted)
            return
    git.run("checkout", "--quiet", "--detach", "FETCH_HEAD")


class _Git:
    def __init__(self, config: GitConfig, folder: Path) -> None:
        self._config, self._folder = config, folder
        # the user in a URL can be a token
        self._secret = config.password or (config.username if config.password == "" else None)
        inherited = {name: value for name, value in os.environ.items() if not _NOT_INHERITED.fullmatch(name)}
        self._environment = {**inherited, **_QUIET, "LC_ALL": "C"}
        self._options = ["-c", "http.lowSpeedLimit=1000", "-c", "http.lowSpeedTime=60", "-c", "core.askPass="]
        if config.password is not None and config.host:
            # the empty helper keeps others from storing these credentials
            self._options += ["-c", "credential.helper=", "-c", f"credential.{config.host}.helper={_HELPER}"]
            self._environment["CLOUDTRAIN_GIT_USERNAME"] = config.username or ""
            self._environment["CLOUDTRAIN_GIT_PASSWORD"] = config.password
        if not {"GIT_SSH_COMMAND", "GIT_SSH"} & inherited.keys() and not self._has_ssh_command():
            self._environment["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes -o ConnectTimeout=30"

    def _has_ssh_command(self) -> bool:
        return self._start("config", "core.sshCommand").returncode == 0

    def fails(self, *arguments: str) -> bool:
        """Run git. Returns whether it failed, which may mean that the server lacks a feature.

        Raises InvalidSource for a failure with another known cause.
        """
        done = self._start(*arguments)
        if done.returncode == 0:
            return False
        if _advice(done.stderr) and "couldn't find remote ref" not in done.stderr:
            raise self._error(done)
        return True

    def run(self, *arguments: str) -> str:
        """Run git. Returns its output. Raises InvalidSource."""
        done = self._start(*arguments)
        if done.returncode:
            raise self._error(done)
        return done.stdout

    def _start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["git", *self._options, *arguments],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # without a terminal, ssh cannot prompt either
            )
        except FileNotFoundError:
            raise InvalidSource(
                "git_config: git is not installed", hint="Install git, or clone yourself."
            ) from None

    def _error(self, done: subprocess.CompletedProcess[str]) -> InvalidSource:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        said = next(
            (line for line in reversed(lines) if re.match("fatal:|error:", line)), (lines or [""])[-1]
        )
        said = re.sub("^(fatal|error): ", "", said)
        if self._secret:
            said = said.replace(self._secret, "***")
        wanted = self._config.commit or self._config.branch
        at = f" at {wanted}" if wanted else ""
        return InvalidSource(
            f"git_config: {self._config.repo}{at} cannot be cloned: {said or 'there is no such commit'}",
            hint=_advice(done.stderr) or ("" if said else "Check branch and commit."),
        )


def _advice(text: str) -> str | None:
    return next((hint for pattern, hint in _HINTS if re.search(pattern, text)), None)


def _paths(clone: Path, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields with paths, as paths in the clone. Raises InvalidSource for a path or link that leads out of it."""
    source = fields.get("source_dir")
    found: dict[str, Any] = {}
    if source:
        folder = _inside(clone, clone, source, "source_dir")
        if not folder.is_dir():
            raise InvalidSource(f"git_config: source_dir {source} is not a folder of the repository")
        found["source_dir"] = str(folder)
        _inside(clone, folder, fields["entry_point"], "entry_point")
        _check_links(clone, folder)
    else:
        script = _inside(clone, clone, fields["entry_point"], "entry_point")
        found["entry_point"] = str(script)
        _check_links(clone, script.parent)
    if fields.get("dependencies"):
        paths = [_inside(clone, clone, path, "dependencies") for path in fields["dependencies"]]
        for path in paths:
            _check_links(clone, path)
        found["dependencies"] = [str(path) for path in paths]
    return found


def _inside(clone: Path, base: Path, name: str, field: str) -> Path:
    """The path of ``name`` below ``base``. Raises InvalidSource if it is not in the clone."""
    path = Path(os.path.normpath(base / name))
    if os.path.isabs(name) or not path.is_relative_to(clone) or ".git" in path.relative_to(clone).parts:
        raise InvalidSource(
            f"git_config: {field} {name!r} is not a path in the repository",
            hint="Write it relative to the repository, or to source_dir.",
        )
    if not path.exists():
        others = [other.name for other in path.parent.glob("*") if other.name != ".git"]
        raise InvalidSource(
            f"git_config: the repository has no {field} {name!r}",
            hint=nearest(path.name, others) if others else "Check the branch, and the path.",
        )
    return path


def _check_links(clone: Path, path: Path) -> None:
    """Raises InvalidSource for a link out of the clone: packing it would send files of this machine to the job.

    The folders that lead to ``path`` may be links, too.
    """
    above = [str(folder) for folder in reversed(path.parents) if folder.is_relative_to(clone)]
    folders = os.walk(path) if path.is_dir() else ()
    entries = (os.path.join(folder, name) for folder, *names in folders for name in (*names[0], *names[1]))
    for entry in (*above, str(path), *entries):
        if os.path.islink(entry) and not Path(os.path.realpath(entry)).is_relative_to(clone):
            name = Path(entry).relative_to(clone).as_posix()
            raise InvalidSource(
                f"git_config: {name} of the repository is a link to {os.readlink(entry)}, outside of it",
                hint="Files of your own machine would go to the job. Use another source_dir or commit.",
            )
