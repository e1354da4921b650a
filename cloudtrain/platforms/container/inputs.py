"""The mounts of a job's containers: the runtime, the source, the channels and the checkpoints."""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cloudtrain._system.safe_open import Beneath
from cloudtrain._system.sockets import connect_unix
from cloudtrain.contract import Paths, Settings
from cloudtrain.contract.channels import ChannelInput, request_channels
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.engine.client import Bind
from cloudtrain.engine.engine import find_engine
from cloudtrain.errors import StorageError
from cloudtrain.platforms.common.bundled_runtime import SOURCE_CHANNEL
from cloudtrain.platforms.container.runtime_files import open_up, runtime_binds
from cloudtrain.runtime.inputs.fetch import locate, share_of
from cloudtrain.runtime.inputs.pipes import OnError, PipeChannel
from cloudtrain.runtime.phases import Phase, Phases
from cloudtrain.runtime.supervisor.folder import JobFolder
from cloudtrain.storage import ObjectInfo, open_store, split_uri, state_home, uri_scheme, uri_to_path
from cloudtrain.storage.mount import S3Mount, mounts_below, why_no_mounts
from cloudtrain.storage.uri import check_key

MOUNT_SECONDS = 10.0
"""Seconds that the engine may take to accept a connection."""


def engine_sees(url: str, mount: Path) -> bool:
    """Whether the engine at ``url`` sees ``mount``.

    An engine may run on another machine, in a virtual machine, or in another mount namespace. In that case it would
    silently give containers the empty folder underneath the mount. False if that cannot be determined.
    """
    parts = urlsplit(url)
    peer = getattr(socket, "SO_PEERCRED", None)  # Linux
    if peer is None or parts.scheme != "unix":
        return False
    with contextlib.suppress(OSError), connect_unix(parts.path, MOUNT_SECONDS) as connection:
        size = struct.calcsize("3i")
        process, _, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, peer, size))
        return mount in mounts_below(mount, Path(f"/proc/{process}/mountinfo"))
    return False


INSIDE = Paths(Path(DEFAULT_BASE))
"""The paths in a container."""

WHOLE_CHANNELS = Path("/opt/cloudtrain/channels")
"""The folder in a container where sharded channels are mounted whole."""

Check = Callable[[], object]
Say = Callable[[str], object]


class Inputs:
    """The inputs of one job, which are downloaded to this machine once for all attempts."""

    def __init__(
        self, folder: JobFolder, request: dict[str, Any], settings: Settings, hosts: Sequence[str]
    ) -> None:
        self._folder = folder
        self._request = request
        self._hosts = hosts
        self._checkpoint_uri = settings.checkpoint_uri
        self._channels = request_channels(request)
        self._binds: list[Bind] = []
        self._mounts: list[S3Mount] = []
        self._pipes: list[PipeChannel] = []

    @property
    def checkpoints(self) -> Path:
        """The checkpoint folder, which all hosts share."""
        uri = self._checkpoint_uri
        return uri_to_path(uri) if uri_scheme(uri) == "file" else self._folder.path / "checkpoints"

    def bring(self, phases: Phases, check: Check, say: Say) -> None:
        """Download the inputs that are not on this machine. May be called again after a failure.

        Args:
            check: called at intervals. An exception that it raises ends the download.
            say: prints a line to the job's log.

        Raises:
            StorageError: an input cannot be downloaded.
            NotFound: a channel has no data.
        """
        self.close()
        self._mounts.clear()
        self._binds.clear()
        if self._request["runtime"] == "cloudtrain":
            self._binds += runtime_binds()
        if self._request["source"]:
            self._binds.append(self._source(self._request["source"]))
        for volume in self._request["volumes"]:
            self._binds.append(Bind.parse(volume))
        if self._channels:
            with phases("fetch") as phase:
                for channel in self._channels:
                    self._bring_channel(channel, phase, check, say)
        if not self.checkpoints.exists():
            self.checkpoints.mkdir(parents=True)
            open_up(self.checkpoints, 0o666)
        self._binds.append(Bind(str(self.checkpoints), self._request["checkpoint_path"]))

    def open(self, on_error: OnError) -> None:
        """Mount the channels that are read on demand, and start to feed pipes, for a new attempt.

        Args:
            on_error: called by another thread if the data of a pipe cannot be read.
        """
        for mount in self._mounts:
            mount.start()
        for channel in self._channels:
            if channel.mode == "Pipe":
                self._open_pipes(channel, on_error)

    def close(self) -> None:
        """Undo `open`, after the containers have ended."""
        while self._pipes:
            self._pipes.pop().stop()
        for mount in self._mounts:
            mount.stop()

    def _open_pipes(self, channel: ChannelInput, on_error: OnError) -> None:
        base, found = locate(channel)
        entries = list(found)
        for host in self._hosts:
            paths = self._folder.host(host)
            pipes = PipeChannel(
                paths.channel(channel.name),
                base,
                self._share(channel, entries, host),
                channel.document,
                on_error,
                mode=0o666,
                beneath=paths.base,
            )
            self._pipes.append(pipes)
            pipes.start()

    def _share(self, channel: ChannelInput, entries: Iterable[ObjectInfo], host: str) -> list[ObjectInfo]:
        """The objects that ``host`` gets."""
        return list(share_of(channel, entries, self._hosts.index(host), len(self._hosts)))

    def of(self, host: str) -> list[Bind]:
        """The mounts of one host, for a new attempt. Creates the mount points, and makes the folders writable."""
        base = self._folder.host(host).base
        binds = [Bind(str(base), DEFAULT_BASE), *self._binds]
        for bind in binds[1:]:
            _make_mount_point(base, bind)
        open_up(base, 0o666)
        return binds

    def _source(self, uri: str) -> Bind:
        path = uri_to_path(uri) if uri_scheme(uri) == "file" else None
        if path and path.is_dir():
            return Bind(str(path), str(INSIDE.code), read_only=True)
        parent, name = split_uri(uri)
        if path is None:
            path = self._folder.path / "source" / name
            path.parent.mkdir(exist_ok=True)
            open_store(parent).download(name, path)
        if path.is_relative_to(state_home()):
            open_up(path, 0o444)
        return Bind(str(path), str(INSIDE.channel(SOURCE_CHANNEL) / name), read_only=True)

    def _bring_channel(self, channel: ChannelInput, phase: Phase, check: Check, say: Say) -> None:
        base, found = locate(channel)
        if channel.mode == "Pipe":
            return
        is_local = uri_scheme(channel.uri) == "file"
        folder = uri_to_path(base) if is_local else None
        if channel.mode == "FastFile" and not is_local:
            try:
                folder = self._mount(channel.name, base)
            except StorageError as error:
                say(f"channel {channel.name}: FastFile copies the data: {error.message}")
        is_sharded = channel.is_sharded and len(self._hosts) > 1
        if folder and is_sharded:
            self._mount_parts(channel, folder, list(found))
        elif folder:
            self._mount_whole(
                channel.name, folder if base == channel.uri else folder / split_uri(channel.uri)[1]
            )
        elif is_sharded:
            entries = list(found)
            for host in self._hosts:
                target = self._folder.host(host).channel(channel.name)
                _download(base, self._share(channel, entries, host), target, phase, check)
        else:
            target = self._folder.path / "data" / channel.name
            _download(base, list(found), target, phase, check)
            open_up(target, 0o444)
            self._mount_whole(channel.name, target)

    def _mount(self, name: str, uri: str) -> Path:
        """Mount a folder of S3 on this machine, for the engine. Raises StorageError if that cannot be done."""
        if why := why_no_mounts(for_others=True):
            raise StorageError(why)
        folder = self._folder.path / "mounts" / name
        engine = find_engine(self._request.get("engine"))
        mount = S3Mount(uri, folder, for_others=True)
        mount.start()
        if not engine_sees(engine.url, folder):
            mount.stop()
            raise StorageError(f"{engine.kind} does not see what is mounted here")
        self._mounts.append(mount)
        return folder

    def _mount_whole(self, name: str, path: Path) -> None:
        """Mount a folder as the channel, or a file as the only file in it."""
        target = INSIDE.channel(name)
        bind = Bind(str(path), str(target if path.is_dir() else target / path.name), read_only=True)
        self._binds.append(bind)

    def _mount_parts(self, channel: ChannelInput, folder: Path, entries: Sequence[ObjectInfo]) -> None:
        """Mount the whole folder outside the channel, and link each host's share of the files into its channel."""
        whole = WHOLE_CHANNELS / channel.name
        self._binds.append(Bind(str(folder), str(whole), read_only=True))
        for host in self._hosts:
            paths = self._folder.host(host)
            target = paths.channel(channel.name).relative_to(paths.base)
            with Beneath(paths.base) as base:
                for entry in self._share(channel, entries, host):
                    check_key(entry.key, channel.name)
                    base.link(f"{target}/{entry.key}", f"{whole}/{entry.key}")


def _download(base: str, entries: Sequence[ObjectInfo], folder: Path, phase: Phase, check: Check) -> None:
    from cloudtrain.storage.transfer import download_entries

    def progress(count: int) -> None:
        check()
        phase.add(count)

    phase.add_total(sum(entry.size for entry in entries))
    download_entries(open_store(base), entries, folder, progress=progress)


def _make_mount_point(base: Path, bind: Bind) -> None:
    """Create the mount point if it is below ``base``, which is mounted too: the engine would create it as root."""
    if not bind.target.startswith(f"{DEFAULT_BASE}/"):
        return
    point = bind.target.removeprefix(f"{DEFAULT_BASE}/")
    with Beneath(base) as folder:
        if Path(bind.source).is_dir():
            folder.make_folder(point)
        else:
            folder.touch(point)
