"""Finds files that look like secrets, by their name or their content.

The library detect-secrets is not used: importing it takes 0.16 s and an HTTP client, and its entropy checks also
report hashes and notebooks. The rules here match only what is a secret beyond reasonable doubt: false alarms would
teach users to pass ``allow_secrets`` always.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import PurePath

from cloudtrain.packaging._tree import ArchiveMember, failed_read

LARGEST_SCANNED = 1_000_000
"""In bytes. Larger files are data, not written by hand."""

_NAMES = {
    ".env": "environment file",
    ".env.*": "environment file",
    "id_rsa": "SSH private key",
    "id_dsa": "SSH private key",
    "id_ecdsa": "SSH private key",
    "id_ed25519": "SSH private key",
    "*.key": "private key",
    "*.p12": "key store",
    "*.pfx": "key store",
    ".netrc": "passwords",
    ".pypirc": "package index password",
    ".git-credentials": "git password",
    "kubeconfig": "Kubernetes credentials",
}
_PATHS = {
    ".aws/credentials": "AWS credentials",
    ".kube/config": "Kubernetes credentials",
}
_TEMPLATES = (".example", ".sample", ".template", ".dist")

_AWS_KEY_ID = re.compile(rb"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")
_AWS_SECRET = re.compile(rb"(?<![A-Za-z0-9/+=])(?![0-9a-f]{40})[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=])")
_NEXT_TO = 300


def _aws_key_pair(data: bytes) -> bool:
    """Whether there is an access key id with a likely secret key at most `_NEXT_TO` bytes away."""
    return any(
        _AWS_SECRET.search(data, max(0, found.start() - _NEXT_TO), found.end() + _NEXT_TO)
        for found in _AWS_KEY_ID.finditer(data)
        if not found.group().endswith(b"EXAMPLE")  # the AWS documentation uses such keys
    )


def _matches(pattern: bytes) -> Callable[[bytes], object]:
    return re.compile(pattern).search


# Rules for the content. A regular expression runs only if one of its markers is found, which is many times faster.
_CONTENTS: tuple[tuple[str, tuple[bytes, ...], Callable[[bytes], object]], ...] = (
    # The header line alone is not a key. Inside JSON, line ends are the two characters `\n`.
    (
        "private key",
        (b"PRIVATE KEY",),
        _matches(
            rb"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY(?: BLOCK)?-----"
            rb"(?:\s|\\[nr]|[A-Za-z-]+: [^\n]*\n)*[A-Za-z0-9+/]{32}"
        ),
    ),
    ("AWS access key", (b"AKIA", b"ASIA"), _aws_key_pair),
    (
        "GitHub token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        _matches(rb"(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_\w{82})\b"),
    ),
    ("Hugging Face token", (b"hf_",), _matches(rb"hf_[A-Za-z0-9]{34}\b")),
    ("Slack token", (b"xox",), _matches(rb"xox[abeprs]-\d[\w-]{20,}")),
)


def secret_name(name: str) -> str | None:
    """The rule that a file's path matches, or None."""
    parts = name.lower().split("/")
    if parts[-1].endswith(_TEMPLATES):
        return None
    for pattern, rule in _NAMES.items():
        if fnmatchcase(parts[-1], pattern):
            return rule
    return _PATHS.get("/".join(parts[-2:]))


def secret_content(data: bytes) -> str | None:
    """The rule that a file's content matches, or None. Binary data matches no rule."""
    if b"\0" in data[:8192]:
        return None
    for rule, markers, matches in _CONTENTS:
        if any(marker in data for marker in markers) and matches(data):
            return rule
    return None


def find_secrets(members: Iterable[ArchiveMember]) -> list[tuple[str, str]]:
    """The name of each file that looks like a secret, and the rule that it matches.

    Raises:
        InvalidSource: a file cannot be read.
        Changed: a file has vanished.
    """
    found = []
    for member in members:
        if member.is_file:
            # Check the path on disk too: a link may have another name than its target.
            rule = (
                secret_name(member.name)
                or secret_name(PurePath(member.path).as_posix())
                or _rule_for_content(member)
            )
            if rule:
                found.append((member.name, rule))
    return found


def _rule_for_content(member: ArchiveMember) -> str | None:
    if member.size > LARGEST_SCANNED:
        return None
    try:
        with open(member.path, "rb") as file:
            return secret_content(file.read(LARGEST_SCANNED))
    except OSError as error:
        raise failed_read(member.path, error) from error
