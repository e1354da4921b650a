"""A file or folder here, or an object or prefix in S3, as a user names it; and the lists of ``cloudtrain s3 ls``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain.aws import owner_of
from cloudtrain.errors import NotFound, StorageError
from cloudtrain.storage import FileStore, ObjectInfo, S3Store, split_uri, uri_to_path
from cloudtrain.storage.client import connection
from cloudtrain.storage.errors import s3_errors
from cloudtrain.storage.uri import split_bucket_uri, uri_scheme

LIST_FIRST = "Check the address. What a bucket has: cloudtrain s3 ls s3://BUCKET/"


@dataclass(frozen=True)
class Tree:
    """The files below a folder or prefix. ``shown`` is its name in messages."""

    store: FileStore | S3Store
    shown: str

    def show(self, key: str) -> str:
        """The name of one file in messages, with control characters escaped."""
        return printable(f"{self.shown.rstrip('/')}/{key}" if self.shown != "." else f"./{key}")

    def files(self) -> list[ObjectInfo]:
        """All files, sorted by key, without the empty objects that mark folders. A missing folder has none."""
        return [entry for entry in self.store.list() if not entry.key.endswith("/")]


@dataclass(frozen=True)
class Location:
    """Where to copy from or to. Create it with `parse`."""

    text: str
    path: Path | None
    """None in S3."""

    @classmethod
    def parse(cls, text: str) -> Location:
        """Raises StorageError for text that is neither a path nor a valid URI."""
        if "://" in text:
            if uri_scheme(text) == "file":
                return cls(text, uri_to_path(text))
            if uri_scheme(text) != "s3":
                raise StorageError(f"{text!r} is not in S3", hint="Copy it with the tool of its service.")
            split_bucket_uri(text)
            return cls(text, None)
        if text.startswith("s3:"):
            raise StorageError(f"{text!r} is not a URI", hint="Write two slashes: s3://bucket/prefix.")
        if not text:
            raise StorageError("an empty path names nothing", hint="Write . for this folder.")
        if text == "-":
            raise StorageError(
                "standard input and output cannot be copied",
                hint="Name a file. Write ./- for a file called -.",
            )
        return cls(text, Path(text))

    @property
    def in_s3(self) -> bool:
        return self.path is None

    @property
    def is_bucket(self) -> bool:
        """Whether it is a whole bucket."""
        return self.in_s3 and not split_bucket_uri(self.text)[1]

    @property
    def names_folder(self) -> bool:
        """Whether a file copied to it keeps its name: ``data/``, a bucket, an existing folder."""
        if self.path is None:
            return self.text.endswith("/") or self.is_bucket
        return self.text.endswith(("/", os.sep)) or self.path.is_dir()

    @property
    def tree(self) -> Tree:
        """The files below it."""
        if self.path is None:
            return Tree(S3Store(self.text, owner=owner_of(self.text)), self.text)
        return Tree(FileStore(self.path), self.text)

    @property
    def parent(self) -> tuple[Tree, str]:
        """The folder that it is in, and its name there. Raises StorageError for a bucket or a root folder."""
        if self.path is None:
            folder, name = split_uri(self.text)
            return Tree(S3Store(folder, owner=owner_of(folder)), folder), name
        path = self.path.absolute()
        return Tree(FileStore(path.parent), os.path.dirname(self.text.rstrip("/")) or "."), path.name

    @property
    def behind_link(self) -> Location:
        """The target of a symbolic link; ``self`` if it is none. A copy must not replace links such as /dev/stdout."""
        if self.path is None or not self.path.is_symlink():
            return self
        path = self.path.resolve()
        return Location(str(path), path)

    def find_file(self) -> tuple[Tree, ObjectInfo] | None:
        """The file or object itself with its folder; None if it is a folder, or does not exist."""
        if self.is_bucket or self.text.endswith("/"):
            return None
        tree, name = self.parent
        found = tree.store.stat(name) if name else None
        return (tree, found) if found else None

    def find_tree(self) -> tuple[Tree, list[ObjectInfo]]:
        """The folder and all files below it.

        Raises:
            NotFound: there is no such folder, bucket, or object below the prefix.
        """
        tree = self.tree
        if self.path is not None and not self.path.is_dir():
            raise NotFound(f"the folder {printable(self.text)} does not exist")
        files = tree.files()
        if not files and self.in_s3 and not self.is_bucket:
            raise NotFound(
                f"there is nothing below {printable(self.text.rstrip('/'))}/",
                hint=f"See what there is: cloudtrain s3 ls s3://{split_bucket_uri(self.text)[0]}",
            )
        return tree, files


def printable(text: str) -> str:
    """``text`` with control characters and bytes that are not UTF-8 escaped, for a terminal."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in text
    )


def list_buckets() -> list[ObjectInfo]:
    """All buckets of the account, with the time of their creation. Raises StorageError."""
    with s3_errors("the list of buckets"):
        found = connection().client.list_buckets().get("Buckets", [])
    return [ObjectInfo(bucket["Name"], 0, bucket["CreationDate"].timestamp()) for bucket in found]


def list_objects(uri: str, *, recursive: bool) -> tuple[str, Iterable[ObjectInfo]]:
    """The URI of a folder and its content, or a single object.

    Raises:
        NotFound: there is nothing at ``uri``.
        StorageError: ``uri`` is not in S3.
    """
    location = Location.parse(uri)
    tree = location.tree
    if not isinstance(tree.store, S3Store):
        raise StorageError(
            f"{printable(uri)} is on this machine", hint="Use ls. S3 is at s3://bucket/prefix."
        )
    listed = tree.store.list() if recursive else tree.store.list_folder()
    entries = [entry for entry in listed if entry.key]
    if not entries and not location.is_bucket:
        found = location.find_file()
        if found is None:
            raise NotFound(f"there is nothing at {printable(uri)}", hint=LIST_FIRST)
        return found[0].store.uri, [found[1]]
    return tree.store.uri, entries
