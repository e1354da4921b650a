"""Fetches the source and the channels to this host."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cloudtrain._system.safe_open import Beneath
from cloudtrain.contract import Paths
from cloudtrain.contract.channels import ChannelInput
from cloudtrain.contract.source import SourceLimits
from cloudtrain.errors import NotFound, StorageError
from cloudtrain.runtime.digest import sha256_of
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.inputs.unpack import unpack
from cloudtrain.storage import ObjectInfo, open_store, split_uri, uri_scheme, uri_to_path
from cloudtrain.storage.retry_policy import ATTEMPTS
from cloudtrain.storage.uri import check_key

if TYPE_CHECKING:
    from cloudtrain.runtime.inputs.pipes import OnError, PipeChannel
    from cloudtrain.storage import Progress
    from cloudtrain.storage.mount import S3Mount


def fetch_source(config: HostConfig) -> None:
    """Unpack the source archive, downloaded or from its channel, into the code folder.

    Raises StorageError if the archive is missing, is not the submitted one, or does not fit on the disk, and
    InvalidSource if it is too large or unsafe.
    """
    if config.source_uri is None:
        return
    sha256 = config.settings.source_sha256 or None
    limits = SourceLimits(config.settings.max_source_size, config.settings.max_source_files)
    parent, name = split_uri(config.source_uri)
    if config.settings.source_channel:
        unpack(config.paths.channel(config.settings.source_channel) / name, config.paths.code, sha256, limits)
    elif uri_scheme(config.source_uri) == "file":
        unpack(uri_to_path(config.source_uri), config.paths.code, sha256, limits)
    else:
        archive = config.paths.run / name
        for _ in range(ATTEMPTS):  # download the archive again if it was corrupted on the way
            open_store(parent).download(name, archive)
            if sha256 is None or sha256_of(archive) == sha256:
                break
        unpack(archive, config.paths.code, sha256, limits)
        archive.unlink()


def locate(channel: ChannelInput) -> tuple[str, Iterator[ObjectInfo]]:
    """Resolve a channel's URI to the URI of a folder and the objects in it that belong to the channel.

    ``s3://bucket/train`` is the object ``train`` if it exists, or else all objects below ``train/``; if there are none,
    all objects whose names begin with ``train``, as on SageMaker.

    Raises:
        NotFound: there is nothing at the URI; the message names the channel.
    """
    try:
        return _locate(channel.uri)
    except NotFound as error:
        raise NotFound(f"channel {channel.name!r}: {error.message}", hint=error.hint) from None


def _locate(uri: str) -> tuple[str, Iterator[ObjectInfo]]:
    is_name = bool(urlsplit(uri).path.strip("/")) and not uri.endswith("/")
    folder, name = split_uri(uri) if is_name else (uri, "")
    if is_name:
        entry = open_store(folder).stat(name)
        if entry is not None:
            return folder, iter([entry])
    bases = [(uri, "")]
    if is_name and uri_scheme(uri) != "file":
        bases.append((folder, name))
    for base, prefix in bases:
        entries = (entry for entry in open_store(base).list(prefix) if not entry.key.endswith("/"))
        first = next(entries, None)
        if first is not None:
            return base, itertools.chain([first], entries)
    place = "path" if uri_scheme(uri) == "file" else "bucket and the prefix"
    raise NotFound(f"there is nothing at {uri}", hint=f"Check the {place}, or put the data there first.")


def share_of(
    channel: ChannelInput, found: Iterable[ObjectInfo], host_rank: int, host_count: int
) -> Iterable[ObjectInfo]:
    """The objects for one host: all ``found`` ones, or with ``ShardedByS3Key`` every ``host_count``-th in key order."""
    if not channel.is_sharded:
        return found
    return sorted(found, key=lambda entry: entry.key)[host_rank::host_count]


def _locate_share(config: HostConfig, channel: ChannelInput) -> tuple[str, Iterable[ObjectInfo]]:
    """The URI of a folder, and the objects in it that this host gets. Raises NotFound."""
    base, found = locate(channel)
    return base, share_of(channel, found, config.host.rank, config.host.count)


def fetch_channel(config: HostConfig, channel: ChannelInput, on_total: Progress, progress: Progress) -> None:
    """Put a channel's data into its folder; ``file://`` data is linked, not copied.

    Raises:
        NotFound: there is nothing at the channel's URI; the message names the channel.
        StorageError: the data cannot be read, or does not fit on the disk.
    """
    from cloudtrain.storage.transfer import download_entries

    folder = config.paths.channel(channel.name)
    base, share = _locate_share(config, channel)
    if uri_scheme(channel.uri) == "file":
        _link(folder, uri_to_path(base), share, whole=base == channel.uri and not channel.is_sharded)
        return
    entries = list(share)
    if take_prepared(config.paths, channel.name, entries):
        return
    on_total(sum(entry.size for entry in entries))
    download_entries(open_store(base), entries, folder, progress=progress)
    if config.settings.spare:
        mark_prepared(config.paths, channel.name, entries)


def mount_channel(config: HostConfig, channel: ChannelInput) -> S3Mount:
    """Make a channel in S3 available as files that are read on demand (FastFile mode).

    Raises:
        NotFound: there is nothing at the channel's URI.
        StorageError: the machine cannot mount it, so that it has to be fetched.
    """
    from cloudtrain.storage.mount import S3Mount, why_no_mounts

    if why := why_no_mounts():
        raise StorageError(why)
    base, share = _locate_share(config, channel)
    # the channel is a link to the mount, because the folder with all channels may be mounted elsewhere too
    source = config.paths.base / "mounts" / channel.name
    mount = S3Mount(base, source)
    mount.start()
    try:
        whole = base == channel.uri and not channel.is_sharded
        _link(config.paths.channel(channel.name), source, share, whole=whole)
    except BaseException:
        mount.stop()
        raise
    return mount


def open_pipes(config: HostConfig, channel: ChannelInput, on_error: OnError) -> PipeChannel:
    """Start feeding the pipes of a channel in Pipe mode. Raises NotFound if there is nothing at its URI."""
    from cloudtrain.runtime.inputs.pipes import PipeChannel  # not every client of this module has pipes

    base, share = _locate_share(config, channel)
    pipes = PipeChannel(config.paths.channel(channel.name), base, share, channel.document, on_error)
    pipes.start()
    return pipes


def _link(folder: Path, source: Path, entries: Iterable[ObjectInfo], *, whole: bool) -> None:
    """Link ``entries`` of ``source`` in ``folder``. If they are the ``whole`` source, link the source folder itself."""
    if folder.is_symlink():
        folder.unlink()
    if whole and not folder.exists():
        folder.symlink_to(source, target_is_directory=True)
        return
    for entry in entries:
        check_key(entry.key, str(source))
        link = folder / entry.key
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(source / entry.key)


_FOLDER = "prepared"
_LONGEST = 100


def mark_prepared(paths: Paths, channel: str, entries: Sequence[ObjectInfo]) -> None:
    """Record that a channel's data is complete, before any script has run on this host."""
    with Beneath(paths.base) as base:
        base.make_folder(_FOLDER)
        base.write(f"{_FOLDER}/{channel}", _digest(entries))


def take_prepared(paths: Paths, channel: str, entries: Sequence[ObjectInfo]) -> bool:
    """Whether a channel's data was prepared for these ``entries``. Removes the mark, as scripts may now change data."""
    key = f"{_FOLDER}/{channel}"
    with contextlib.suppress(OSError), Beneath(paths.base) as base:
        mark = base.read(key, _LONGEST)
        base.remove(key)
        return mark == _digest(entries)
    return False


def _digest(entries: Sequence[ObjectInfo]) -> bytes:
    listing = sorted((entry.key, entry.size, entry.modified) for entry in entries)
    return hashlib.sha256(repr(listing).encode()).hexdigest().encode()
