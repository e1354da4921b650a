"""Storage URIs: ``file:///folder``, ``s3://bucket/prefix`` and ``gs://bucket/prefix``."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes, urlsplit

from cloudtrain._system.paths import own_path, unusable_name
from cloudtrain._system.patterns import pattern
from cloudtrain.errors import StorageError

SCHEMES = ("file", "s3", "gs")

_BUCKET = pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


def uri_scheme(uri: str) -> str:
    """``file``, ``s3`` or ``gs``. Raises StorageError for anything else, with the known schemes as a hint."""
    scheme, separator, _ = uri.partition("://")
    if separator and scheme in SCHEMES:
        return scheme
    if separator:
        hint = f"Known: {', '.join(f'{name}://' for name in SCHEMES)}."
        raise StorageError(f"{uri!r} has an unknown scheme", hint=hint)
    hint = f"Write {Path(uri).absolute().as_uri()} for the folder, or s3://bucket/prefix."
    raise StorageError(f"{uri!r} is not a URI", hint=hint)


def uri_to_path(uri: str) -> Path:
    """The absolute path of a ``file://`` URI, with percent-encoding decoded.

    Raises StorageError for a relative path or a host other than this one (RFC 8089).
    """
    return Path(own_path(_file_path(uri)))


def _file_path(uri: str) -> str:
    """The path in a ``file://`` URI, decoded, with slashes."""
    parts = urlsplit(uri)
    path = os.fsdecode(unquote_to_bytes(parts.path))
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path or "\0" in path:
        raise StorageError(f"{uri!r} names no absolute path", hint="Write three slashes: file:///folder.")
    if parts.query or parts.fragment:
        raise StorageError(f"{uri!r} has a query or a fragment", hint="Write %3F for ?, and %23 for #.")
    return path


def _quoted_path(uri: str) -> str:
    """The path in a ``file://`` URI, as it is written there, without slashes at its end."""
    _file_path(uri)
    return urlsplit(uri).path.rstrip("/")


def split_bucket_uri(uri: str, scheme: str = "s3") -> tuple[str, str]:
    """Bucket and key of the URI of an object, without trailing slashes. These URIs are not percent-encoded."""
    found, _, rest = uri.partition("://")
    bucket, _, key = rest.partition("/")
    if found != scheme or not _BUCKET.fullmatch(bucket):
        raise StorageError(f"{uri!r} has no valid bucket name", hint=f"Write {scheme}://bucket/prefix.")
    key = key.rstrip("/")
    if key:
        check_key(key, uri)
    return bucket, key


def is_valid_key(key: str) -> bool:
    """Whether ``key`` is relative and stays below its folder."""
    return bool(key) and "\0" not in key and not any(part in ("", ".", "..") for part in key.split("/"))


def check_key(key: str, uri: str) -> None:
    """Raises StorageError unless ``key`` is relative, valid UTF-8, and stays below ``uri``."""
    if not is_valid_key(key):
        hint = "The parts of a key are separated by single slashes; none may be empty, . or .."
        raise StorageError(f"{key!r} below {uri} is not a valid key", hint=hint)
    try:
        key.encode()
    except UnicodeEncodeError:
        raise StorageError(f"{key!r} below {uri} is not UTF-8", hint="Rename the file.") from None


def own_file(folder: Path, key: str) -> Path:
    """The file below ``folder`` to which ``key``, which `check_key` accepts, is downloaded.

    Raises StorageError if this system cannot have a file of that name.
    """
    if why := unusable_name(key):
        raise StorageError(
            f"{key!r} cannot be a file in {folder}: {why}", hint="Use WSL, or rename the object."
        )
    return folder / key


def join_uri(uri: str, *parts: str) -> str:
    """``uri`` with ``parts`` below it: ``join_uri("s3://bucket/out", "job", "model")``.

    A part is a key without percent-encoding; it may contain slashes.
    """
    for part in parts:
        check_key(part, uri)
    if uri_scheme(uri) == "file":
        # as text: the path may be another machine's, which runs another system
        return "/".join(
            [f"file://{_quoted_path(uri)}", *(quote_from_bytes(os.fsencode(part)) for part in parts)]
        )
    return "/".join([uri.rstrip("/"), *parts])


def split_uri(uri: str) -> tuple[str, str]:
    """The folder's URI, for `open_store`, and the last part of the key, for a `Store` method.

    Raises StorageError if there is no key, as for a bucket or the root of the file system.
    """
    if uri_scheme(uri) == "file":
        parent, _, last = _quoted_path(uri).rpartition("/")
        folder, name = f"file://{parent or '/'}", os.fsdecode(unquote_to_bytes(last))
    else:
        scheme = uri_scheme(uri)
        bucket, key = split_bucket_uri(uri, scheme)
        parent, _, name = key.rpartition("/")
        folder = f"{scheme}://{bucket}/{parent}".rstrip("/")
    if not name:
        raise StorageError(f"{uri!r} names no object", hint="Add its key.")
    return folder, name
