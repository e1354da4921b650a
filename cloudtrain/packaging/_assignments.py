"""Finds literal values of names that look secret: ``export AWS_SECRET_ACCESS_KEY=...``, ``"apiKey": "..."``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath

from cloudtrain._secrets.names import is_secret_name, split_name
from cloudtrain._secrets.urls import HIDDEN
from cloudtrain._secrets.values import looks_random

_MARKS = (
    *(b"auth", b"bearer", b"credential", b"creds", b"key", b"pass", b"pat", b"pwd", b"secret", b"token"),
    *(b"cookie", b"dsn", b"passphrase", b"webhook", b"connection"),
)
"""In lower case; one of them is in every name that `is_secret_name` accepts and that matters here."""

_ANNOTATION = rb"(?:: ?[\w.\[\]| ]{1,40}(?==))?"
_DEFAULT = rb",(?:\s{0,20}\w{1,20}=[\w.]{1,20},){0,3}\s{0,20}default="
"""Of an argument on the command line, as in ``add_argument("--api-key", type=str, default="...")``."""
_ASSIGNED = (
    rb"[\w.-]{0,40}\\?[\"'`]?\]?"
    + _ANNOTATION
    + rb"\s{0,4}(?:=>|:=|\?=|=|:(?!:)|"
    + _DEFAULT
    + rb"|,)[ \t]{0,4}"
)
_AFTER = re.compile(
    _ASSIGNED + rb"(?:[bBrRuU]?\\?(?P<quote>[\"'`])(?P<quoted>[^\"'`\s\\]{8,512})\\?(?P=quote)"
    rb"|(?P<plain>[^\s\"'`,;\\]{8,512}))"
)
_BEFORE = re.compile(rb"[\w.-]{0,60}\Z")

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

_IDENTIFIER = re.compile(
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
"""Parts of names of what is not a secret, such as ``password_hash_type``."""
_FLEETING = {"change", "client", "continuation", "grant", "next", "page", "pagination", "verification"}
"""Parts of a name before ``token`` where it is used only once."""
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
_PASSWORD = re.compile(r"pass|pwd|secret|auth_?token|api[-_]?key", re.IGNORECASE)

_HEADER = re.compile(
    rb"\bAuthorization\b[\"']?\s{0,3}[:=,]\s{0,3}[\"']?(?:Bearer|Basic|Token)\s+(?P<value>[\w.~+/=-]{12,})"
)
_URL = re.compile(
    rb"[A-Za-z][A-Za-z0-9+.-]{1,30}://(?P<user>[^\s/:@\"'<>`]*):(?P<password>[^\s/@\"'<>`]{6,})@(?P<host>[\w.-]+)"
)
_DOCKER_ENV = re.compile(rb"^(\s*ENV\s+\w+)[ \t]", re.IGNORECASE | re.MULTILINE)
_IN_TEXT = (
    (
        b"=",
        "password in a connection string",
        re.compile(
            rb"\b\w{2,20}=[^\s;,\"'=()]+(?:;\s?| )(?:password|pwd)=(?P<value>[^\s;,\"'&()]{8,128})",
            re.IGNORECASE,
        ),
    ),
    (
        b"curl",
        "password on a command line",
        re.compile(
            rb"\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[ =]?[\"']?[^\s:\"'$]+:(?P<value>[^\s\"'$]{8,128})"
        ),
    ),
    (
        b"sshpass",
        "password on a command line",
        re.compile(rb"\bsshpass\s+-p\s?[\"']?(?P<value>[^\s\"'$]{8,128})"),
    ),
)
"""A mark that is in every match, the rule, and the pattern."""
_NOT_A_HOST = re.compile(
    r"(?:.*\.)?(?:example(?:\.\w+)*|test|invalid|localhost|local)\Z|127\.|0\.0\.0\.0|host", re.IGNORECASE
)


def find_assignments(name: str, data: bytes) -> Iterator[tuple[int, str]]:
    """The offset of each literal value with a secret name in ``data``, and what it is.

    Args:
        name: of the file, whose suffix gives the language.
    """
    path = PurePath(name.lower())
    if path.name.startswith(("dockerfile", "containerfile")):
        data = _DOCKER_ENV.sub(rb"\1=", data)  # ENV NAME value
    yield from _find_values(data, only_quoted=path.suffix in _CODE)
    for mark, rule, pattern in _IN_TEXT:
        if mark in data:
            for found in pattern.finditer(data):
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
    """Whether ``value``, which looks random, is a secret by its name: stricter than where text is only hidden."""
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
    """Whether credentials in a URL are not those of an example."""
    return not _NOT_A_HOST.match(host) and user != password and looks_random(password)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
