"""``git_config``, as in the SageMaker SDK: the repository that a job's source is in, and the credentials for it."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import unquote, urlsplit

from cloudtrain._system.patterns import pattern
from cloudtrain.errors import InvalidJob, nearest

_TEXTS = ("repo", "branch", "commit", "username", "password", "token")
_KNOWN = (*_TEXTS, "2FA_enabled")

_URL = pattern(r"(?P<scheme>https?|ssh|git|file)://", re.IGNORECASE)
_SCP = pattern(r"(?:[\w.-]+@)?[\w.-]+:(?!:)[^:]")
"""``git@host:path``, and not ``transport::address``, by which git would run a program."""

_LOCAL = pattern(r"localhost|127\.\d+\.\d+\.\d+|\[::1\]")

_TOKEN_USERS = {"bitbucket.org": "x-token-auth"}
_TOKEN_USER = "x-access-token"
"""The user whose password is a token. GitHub, GitLab and others accept any name."""


@dataclass(frozen=True)
class GitConfig:
    """A repository, and what to check out of it. ``repo`` has no credentials."""

    repo: str
    branch: str | None = None
    commit: str | None = None
    username: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @property
    def host(self) -> str | None:
        """The start of URLs that the credentials are for, such as ``https://github.com``; None for other transports."""
        parts = urlsplit(self.repo) if _URL.match(self.repo) else None
        return f"{parts.scheme}://{parts.netloc}" if parts and parts.scheme in ("http", "https") else None


def read_git_config(config: Any) -> GitConfig:
    """The repository that ``config`` describes.

    Args:
        config: ``repo``, and optionally ``branch``, ``commit``, and credentials for HTTPS: ``token``, or ``username``
            and ``password``. With ``2FA_enabled``, only the token is used.

    Raises:
        InvalidJob: a field is unknown, missing, or has a wrong value.
    """
    if not isinstance(config, Mapping):
        raise InvalidJob(
            "git_config: expected a dict", hint="For example: git_config={'repo': 'https://...'}."
        )
    for name, value in config.items():
        _check(name, value)
    if not config.get("repo"):
        raise InvalidJob("git_config: repo is missing", hint="For example: {'repo': 'https://...'}.")
    read = GitConfig(config["repo"], config.get("branch"), config.get("commit"))
    if _URL.match(read.repo):
        read = _without_credentials(read)
    elif os.path.exists(os.path.expanduser(read.repo)):
        read = replace(read, repo=os.path.abspath(os.path.expanduser(read.repo)))
    elif not _SCP.match(read.repo):
        raise InvalidJob(
            f"git_config.repo: {read.repo!r} is neither a URL nor a folder",
            hint="Write https://host/path, ssh://user@host/path or user@host:path.",
        )
    return _with_credentials(read, config)


def _check(name: Any, value: Any) -> None:
    if name not in _KNOWN:
        raise InvalidJob(f"git_config: there is no field {name!r}", hint=nearest(str(name), _KNOWN))
    if name == "2FA_enabled":
        if not isinstance(value, bool):
            raise InvalidJob("git_config.2FA_enabled: expected True or False")
        return
    if not isinstance(value, str) or not value:
        raise InvalidJob(f"git_config.{name}: expected a string", hint=f"Leave {name} out if you have none.")
    if re.search(r"[\0\r\n]", value):
        raise InvalidJob(f"git_config.{name}: contains a line break or a null character")
    if name in ("repo", "branch", "commit") and value.startswith("-"):
        raise InvalidJob(f"git_config.{name}: {value!r} looks like an option of git")


def _without_credentials(config: GitConfig) -> GitConfig:
    """Move credentials out of the URL, which the list of processes shows to other users, and git writes into files."""
    try:
        parts = urlsplit(config.repo)
        _ = parts.port
    except ValueError:
        raise InvalidJob("git_config.repo: not a valid URL", hint="Write https://host/path.") from None
    if parts.scheme != "file" and not parts.hostname:
        raise InvalidJob("git_config.repo: the URL names no host", hint="Write https://host/path.")
    user, _, host = parts.netloc.rpartition("@")
    if not user:
        return config
    name, _, password = user.partition(":")
    if parts.scheme not in ("http", "https"):
        if password:
            raise InvalidJob(
                "git_config.repo: a password in a URL for SSH is not used",
                hint="Log in with a key in ssh-agent.",
            )
        return config
    repo = parts._replace(netloc=host).geturl()
    return replace(config, repo=repo, username=unquote(name), password=unquote(password))


def _with_credentials(config: GitConfig, fields: Mapping[str, Any]) -> GitConfig:
    """Raises InvalidJob if the credentials would cross a network unencrypted."""
    token, user, password = (fields.get(name) for name in ("token", "username", "password"))
    if config.host is None:
        if token or user or password:
            warnings.warn("git_config: credentials are only for HTTPS, and not used", stacklevel=5)
        return config
    hostname = urlsplit(config.repo).hostname or ""
    if token and hostname.startswith("git-codecommit"):
        warnings.warn("git_config: CodeCommit has no tokens: token is not used", stacklevel=5)
        token = None
    if token:
        config = replace(config, username=user or _TOKEN_USERS.get(hostname, _TOKEN_USER), password=token)
    elif user or password:
        if fields.get("2FA_enabled") and not hostname.startswith("git-codecommit"):
            raise InvalidJob(
                "git_config: with 2FA_enabled, a password is of no use",
                hint="Pass a token instead: 'token': '...'.",
            )
        if not (user and password):
            raise InvalidJob(
                "git_config: username and password belong together", hint="Pass both, or a token."
            )
        config = replace(config, username=user, password=password)
    if config.password is not None and config.repo.startswith("http://") and not _LOCAL.fullmatch(hostname):
        raise InvalidJob(
            "git_config.repo: http:// would send the credentials unencrypted", hint="Write https://."
        )
    return config
