"""Files that look like secrets, by their name or by what is in them.

detect-secrets, the known library for this, was tried and left aside: importing it takes 0.16 s and an HTTP
client, and its entropy checks also report hashes and notebooks. Only shapes that are secrets beyond
reasonable doubt are refused here, so that nobody gets used to saying ``allow_secrets``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase

from cloudtrain.packaging._tree import Entry, failed_read

LARGEST_SCANNED = 1_000_000
"""Bytes. What people write by hand is smaller; larger files are data."""

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
    """An access key id with something like its secret at most `_NEXT_TO` bytes away."""
    return any(
        _AWS_SECRET.search(data, max(0, found.start() - _NEXT_TO), found.end() + _NEXT_TO)
        for found in _AWS_KEY_ID.finditer(data)
        if not found.group().endswith(b"EXAMPLE")  # those of the AWS documentation
    )


def _matches(pattern: bytes) -> Callable[[bytes], object]:
    return re.compile(pattern).search


# What is in the file: a rule runs only where one of its markers is found, which is many times faster.
_CONTENTS: tuple[tuple[str, tuple[bytes, ...], Callable[[bytes], object]], ...] = (
    # A key, not just the line above one. In JSON its line ends are the two characters `\n`.
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
    """Which rule the file's path falls under, or None."""
    parts = name.lower().split("/")
    if parts[-1].endswith(_TEMPLATES):
        return None
    for pattern, rule in _NAMES.items():
        if fnmatchcase(parts[-1], pattern):
            return rule
    return _PATHS.get("/".join(parts[-2:]))


def secret_content(data: bytes) -> str | None:
    """Which rule the content falls under, or None. Binary data falls under none."""
    if b"\0" in data[:8192]:
        return None
    for rule, markers, matches in _CONTENTS:
        if any(marker in data for marker in markers) and matches(data):
            return rule
    return None


def find_secrets(entries: Iterable[Entry]) -> list[tuple[str, str]]:
    """The name of each file that looks like a secret, and the rule that says so.

    Raises:
        InvalidSource: a file cannot be read.
        Changed: a file vanished meanwhile.
    """
    found = []
    for entry in entries:
        if entry.is_file:
            # The path on disk too: a link may call a file by another name.
            rule = secret_name(entry.name) or secret_name(entry.path) or _rule_for_content(entry)
            if rule:
                found.append((entry.name, rule))
    return found


def _rule_for_content(entry: Entry) -> str | None:
    if entry.size > LARGEST_SCANNED:
        return None
    try:
        with open(entry.path, "rb") as file:
            return secret_content(file.read(LARGEST_SCANNED))
    except OSError as error:
        raise failed_read(entry.path, error) from error
