"""Finds files that look like secrets, by their name or their content.

The library detect-secrets is not used: docs/security.md compares it. The rules here match only what is a
secret beyond reasonable doubt: false alarms would teach users to pass ``allow_secrets`` always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import PurePath

from cloudtrain._secrets.formats import find_formats
from cloudtrain.packaging._assignments import find_assignments
from cloudtrain.packaging._tree import ArchiveMember, failed_read, shown

LARGEST_SCANNED = 1_000_000
"""In bytes. Larger files are data, not written by hand."""

RULES = 3
"""Counts the versions of the rules: a tree that passed others is scanned again."""

ALLOWED = b"pragma: allowlist secret"
"""In a comment, it allows what is on its line, as for detect-secrets."""
ALLOWED_NEXT = b"pragma: allowlist nextline secret"
_ALLOWED_TOO = b"gitleaks:allow"


@dataclass(frozen=True)
class Finding:
    """Something in a file that looks like a secret. ``line`` counts from 1; 0 means the file as a whole."""

    name: str
    line: int
    rule: str

    def __str__(self) -> str:
        where = f"{shown(self.name)}:{self.line}" if self.line else shown(self.name)
        return f"{where} ({self.rule})"


def secret_contents(name: str, data: bytes) -> Iterator[tuple[int, str]]:
    """The line and the rule of each likely secret in a file, in order; at most one for each line.

    There is none in binary data.
    """
    if b"\0" in data[:8192]:
        return
    found: dict[int, str] = {}
    for offset, rule in (*find_formats(data), *find_assignments(name, data)):
        found.setdefault(data.count(b"\n", 0, offset) + 1, rule)
    if not found:
        return
    lines = data.split(b"\n")
    for line, rule in sorted(found.items()):
        before = lines[line - 2] if line > 1 else b""
        if (
            ALLOWED not in lines[line - 1]
            and _ALLOWED_TOO not in lines[line - 1]
            and ALLOWED_NEXT not in before
        ):
            yield line, rule


def find_secrets(members: Iterable[ArchiveMember]) -> list[Finding]:
    """All that looks like a secret.

    Raises:
        InvalidSource: a file cannot be read.
        Changed: a file has vanished.
    """
    found = []
    for member in members:
        if member.is_file:
            # Check the path on disk too: a link may have another name than its target.
            rule = secret_name(member.name) or secret_name(PurePath(member.path).as_posix())
            found += [Finding(member.name, 0, rule)] if rule else _in_content(member)
    return found


def _in_content(member: ArchiveMember) -> list[Finding]:
    if member.size > LARGEST_SCANNED:
        return []
    try:
        with open(member.path, "rb") as file:
            data = file.read(LARGEST_SCANNED)
    except OSError as error:
        raise failed_read(member.path, error) from error
    return [Finding(member.name, line, rule) for line, rule in secret_contents(member.name, data)]


_NAMES = {
    ".env": "environment file",
    ".env.*": "environment file",
    "id_rsa": "SSH private key",
    "id_dsa": "SSH private key",
    "id_ecdsa": "SSH private key",
    "id_ed25519": "SSH private key",
    "*.key": "private key",
    "*.ppk": "private key",
    "secring.gpg": "private key",
    "*.p12": "key store",
    "*.pfx": "key store",
    "*.jks": "key store",
    "*.keystore": "key store",
    "*.kdbx": "password database",
    ".netrc": "passwords",
    "_netrc": "passwords",
    ".pgpass": "database password",
    "pgpass.conf": "database password",
    ".my.cnf": "database password",
    ".mylogin.cnf": "database password",
    ".htpasswd": "passwords",
    ".pypirc": "package index password",
    ".git-credentials": "git password",
    ".dockercfg": "registry password",
    ".s3cfg": "S3 credentials",
    ".boto": "S3 credentials",
    ".passwd-s3fs": "S3 credentials",
    ".vault-token": "Vault token",
    ".databrickscfg": "Databricks token",
    "kaggle.json": "Kaggle API key",
    "kubeconfig": "Kubernetes credentials",
    "credentials.tfrc.json": "Terraform token",
    "application_default_credentials.json": "Google credentials",
}
_PATHS = {
    ".aws/credentials": "AWS credentials",
    ".azure/accesstokens.json": "Azure credentials",
    ".cargo/credentials": "package index password",
    ".cargo/credentials.toml": "package index password",
    ".gem/credentials": "package index password",
    ".huggingface/token": "Hugging Face token",
    "huggingface/token": "Hugging Face token",
    ".kube/config": "Kubernetes credentials",
    "gh/hosts.yml": "GitHub token",
}
_TEMPLATES = (".example", ".sample", ".template", ".dist")


def secret_name(name: str) -> str | None:
    """The rule that a file's path matches, or None."""
    parts = name.lower().split("/")
    if parts[-1].endswith(_TEMPLATES):
        return None
    for pattern, rule in _NAMES.items():
        if fnmatchcase(parts[-1], pattern):
            return rule
    return _PATHS.get("/".join(parts[-2:]))
