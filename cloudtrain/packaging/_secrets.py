"""Finds files that look like secrets, by their name or their content.

The library detect-secrets is not used: docs/security.md compares it. The rules here match only values that are
secrets beyond reasonable doubt: false alarms would teach users to always pass ``allow_secrets``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from pathlib import PurePath

from cloudtrain._dataclass import dataclass
from cloudtrain._secrets.formats import find_formats
from cloudtrain._secrets.names import is_secret_name, split_name
from cloudtrain._secrets.urls import HIDDEN
from cloudtrain._secrets.values import looks_random
from cloudtrain._system.patterns import pattern
from cloudtrain.packaging._tree import ArchiveMember, failed_read, shown

_MARKS = (
    *(b"auth", b"bearer", b"credential", b"creds", b"key", b"pass", b"pat", b"pwd", b"secret", b"token"),
    *(b"cookie", b"dsn", b"passphrase", b"webhook", b"connection"),
)
"""Lower-case marks, one of which is in every relevant name that `is_secret_name` accepts."""

_ANNOTATION = rb"(?:: ?[\w.\[\]| ]{1,40}(?==))?"
_DEFAULT = rb",(?:\s{0,20}\w{1,20}=[\w.]{1,20},){0,3}\s{0,20}default="
"""The default of a command-line argument, as in ``add_argument("--api-key", type=str, default="...")``."""
_ASSIGNED = (
    rb"[\w.-]{0,40}\\?[\"'`]?\]?"
    + _ANNOTATION
    + rb"\s{0,4}(?:=>|:=|\?=|=|:(?!:)|"
    + _DEFAULT
    + rb"|,)[ \t]{0,4}"
)
_AFTER = pattern(
    _ASSIGNED + rb"(?:[bBrRuU]?\\?(?P<quote>[\"'`])(?P<quoted>[^\"'`\s\\]{8,512})\\?(?P=quote)"
    rb"|(?P<plain>[^\s\"'`,;\\]{8,512}))"
)
_BEFORE = pattern(rb"[\w.-]{0,60}\Z")

_CODE = {
    *(
        ".c",
        ".cc",
        ".cpp",
        ".cs",
        ".cu",
        ".go",
        ".h",
        ".hpp",
        ".java",
        ".js",
        ".jsx",
        ".kt",
        ".lua",
        ".m",
        ".mjs",
    ),
    *(".php", ".pl", ".py", ".pyi", ".pyx", ".r", ".rb", ".rs", ".scala", ".swift", ".ts", ".tsx", ".vue"),
}
"""Suffixes of languages where a value without quotes is an expression."""

_IDENTIFIER = pattern(
    r"[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}|arn:.*|[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2})+"
)
"""A UUID, the name of an AWS resource, or a fingerprint."""
_PUBLIC = {
    *(
        "arn",
        "date",
        "digest",
        "expires",
        "file",
        "fingerprint",
        "hash",
        "id",
        "ids",
        "last",
        "md",
        "name",
        "path",
    ),
    *("prefix", "public", "request", "sha", "type", "version"),
}
"""Parts of names of values that are not secrets, such as ``password_hash_type``."""
_FLEETING = {"change", "client", "continuation", "grant", "next", "page", "pagination", "verification"}
"""Parts of a name before ``token`` where the token is used only once."""
_BEFORE_KEY = {
    *(
        "access",
        "account",
        "api",
        "app",
        "auth",
        "encryption",
        "kaggle",
        "license",
        "master",
        "private",
        "secret",
    ),
    *("signing", "storage", "subscription", "wandb"),
}
_PASSWORD = pattern(r"pass|pwd|secret|auth_?token|api[-_]?key", re.IGNORECASE)

_HEADER = pattern(
    rb"\bAuthorization\b[\"']?\s{0,3}[:=,]\s{0,3}[\"']?(?:Bearer|Basic|Token)\s+(?P<value>[\w.~+/=-]{12,})"
)
_URL = pattern(
    rb"[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<user>[^\s/:@\"'<>`]*):(?P<password>[^\s/@\"'<>`]{6,})@(?P<host>[\w.-]+)"
)
_DOCKER_ENV = pattern(rb"^(\s*ENV\s+\w+)[ \t]", re.IGNORECASE | re.MULTILINE)
_IN_TEXT = (
    (
        b"=",
        "password in a connection string",
        pattern(
            rb"\b\w{2,20}=[^\s;,\"'=()]+(?:;\s?| )(?:password|pwd)=(?P<value>[^\s;,\"'&()]{8,128})",
            re.IGNORECASE,
        ),
    ),
    (
        b"curl",
        "password on a command line",
        pattern(rb"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"'$]+:(?P<value>[^\s\"'$]{8,128})"),
    ),
    (
        b"sshpass",
        "password on a command line",
        pattern(rb"\bsshpass\s+-p\s?[\"']?(?P<value>[^\s\"'$]{8,128})"),
    ),
)
"""A mark that is in every match, the rule, and the pattern."""
_NOT_A_HOST = pattern(
    r"(?:.*\.)?(?:example(?:\.\w+)*|test|invalid|localhost|local)\Z|127\.|0\.0\.0\.0|host", re.IGNORECASE
)


def find_assignments(name: str, data: bytes) -> Iterator[tuple[int, str]]:
    """The offset of each literal value with a secret name in ``data``, and its rule.

    Args:
        name: the name of the file, whose suffix determines the language.
    """
    path = PurePath(name.lower())
    if path.name.startswith(("dockerfile", "containerfile")):
        data = _DOCKER_ENV.sub(rb"\1=", data)  # ENV NAME value
    yield from _find_values(data, only_quoted=path.suffix in _CODE)
    for mark, rule, form in _IN_TEXT:
        if mark in data:
            for found in form.finditer(data):
                if looks_random(_text(found["value"])):
                    yield found.start("value"), rule
    if b"uthorization" in data:
        for found in _HEADER.finditer(data):
            if looks_random(_text(found["value"])):
                yield found.start(), "authorization header"
    if b"://" in data and b"@" in data:
        for found in _URL.finditer(data):
            if _is_real(_text(found["user"]), _text(found["password"]), _text(found["host"])):
                yield found.start(), "URL with a password"


def _find_values(data: bytes, *, only_quoted: bool) -> Iterator[tuple[int, str]]:
    lowered = data.lower()
    for mark in _MARKS:
        end = 0
        while (start := lowered.find(mark, end)) >= 0:
            end = start + len(mark)
            after = _AFTER.match(data, end)
            if after is None or (only_quoted and after["quoted"] is None):
                continue
            value = _text(after["quoted"] or after["plain"])
            if not looks_random(value) or HIDDEN in value:
                continue
            before = _BEFORE.search(data, max(0, start - 60), start)
            rest = re.match(rb"[\w.-]{0,40}", data[end : end + 40])
            assert before and rest
            name = _text(before[0] + data[start:end] + rest[0])
            if _is_meant(name.rpartition(".")[2] or name, value):
                yield start, f"the value of {name[-60:].lstrip('.-')}"
                end = after.end()


def _is_meant(name: str, value: str) -> bool:
    """Whether ``value``, which looks random, is a secret according to its name. Stricter than the hiding of text."""
    parts = split_name(name)
    if not is_secret_name(name) or not _PUBLIC.isdisjoint(parts) or "://" in value:
        return False
    if _IDENTIFIER.fullmatch(value) and not _PASSWORD.search(name):
        return False
    pairs = list(zip(["", *parts[:-1]], parts, strict=True))
    if any(part == "token" and before in _FLEETING for before, part in pairs):
        return False
    return all(before in _BEFORE_KEY for before, part in pairs if part == "key")


def _is_real(user: str, password: str, host: str) -> bool:
    """Whether credentials in a URL are real, not an example."""
    return not _NOT_A_HOST.match(host) and user != password and looks_random(password)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


LARGEST_SCANNED = 1_000_000
"""Maximum bytes. Larger files are data, not written by hand."""

RULES = 3
"""The version of the rules: a tree that passed another version is scanned again."""

ALLOWED = b"pragma: allowlist secret"
"""A comment that allows secrets on its line, as in detect-secrets."""
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

    Binary data has none.
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
    """All findings in ``members``.

    Raises:
        InvalidSource: a file cannot be read.
        Changed: a file has vanished.
    """
    found = []
    for member in members:
        if member.is_file:
            # Check the path on disk too: the name of a link may differ from that of its target.
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
    for names, rule in _NAMES.items():
        if fnmatchcase(parts[-1], names):
            return rule
    return _PATHS.get("/".join(parts[-2:]))
