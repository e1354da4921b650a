"""Uploads the model and the other outputs of all hosts together, in SageMaker's layout.

Each kind becomes one archive, which appears under its name when it is complete; without compression, one folder. The
hosts need not share a file system: a follower uploads its part of an archive to the output URI, and the leader reads it
from there. Only files that no earlier host has are moved; see `merge`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cloudtrain._dataclass import dataclass
from cloudtrain._system.safe_open import Skip
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.observe import steady
from cloudtrain.runtime.digest import sha256_of_open
from cloudtrain.runtime.host_config import HostConfig
from cloudtrain.runtime.outputs.merge import (
    FOLDER,
    KIND_FOLDERS,
    KINDS,
    MODEL,
    Merge,
    OutputFile,
    differing_message,
    from_ranges,
)
from cloudtrain.runtime.outputs.output_files import (
    ArchiveWriter,
    list_outputs,
    output_folder,
    temporary_folder,
)
from cloudtrain.runtime.outputs.unsupported_outputs import Skipped, opened
from cloudtrain.storage import join_uri, open_store
from cloudtrain.storage.opening import abort_abandoned_uploads

if TYPE_CHECKING:
    from cloudtrain.observe import EventLog
    from cloudtrain.storage import Progress, Store


def upload_failure(error: Exception, host: str, job_name: str, folder: Path) -> FailureReport:
    """The report of a job whose training is complete but whose outputs could not be uploaded.

    Args:
        folder: the folder that contains the outputs.
    """
    from cloudtrain.runtime.diagnose.ranks import report_error

    report = report_error(error, host, "upload")
    if report.failure_class not in (FailureClass.STORAGE, FailureClass.MISSING_DATA, FailureClass.DISK_FULL):
        return report
    return replace(
        report,
        failure_class=FailureClass.UPLOAD,
        message=f"the training is complete, but its outputs could not be uploaded: {report.message}",
        hint=f"They are in {folder}. Send them with: cloudtrain upload {job_name}",
        time=steady.now(),
    )


PART_PREFIX = ".cloudtrain-part-"
"""The prefix of the names of followers' parts of archives."""

BATCH = 500
"""The number of files in one message. It is limited because the leader reads messages while it watches all hosts."""

Message = dict[str, Any]
Add = Callable[[ArchiveWriter], None]


@dataclass
class Results:
    """The outcome of an upload."""

    uploaded: dict[str, str] = field(default_factory=dict)
    """The URI of each kind."""
    discarded: list[str] = field(default_factory=list)
    """The kinds for which only an earlier attempt had outputs."""
    warnings: list[str] = field(default_factory=list)

    def record(self, events: EventLog) -> None:
        """Emit an event for each kind."""
        for kind in self.discarded:
            events.emit("discarded", kind=kind)
        for kind, uri in self.uploaded.items():
            events.emit("uploaded", kind=kind, uri=uri)


def upload_outputs(
    configs: Sequence[HostConfig], progress: Progress, *, model: bool = True, scratch: Path | None = None
) -> Results:
    """Upload the outputs of hosts whose folders are on this machine; the leader's configuration comes first.

    Args:
        model: whether to upload the model, and remove outputs of earlier attempts; false after a failure.
        scratch: a folder for archives before they are uploaded. The default is the leader's job folder.

    Raises StorageError or OSError.
    """
    leader = configs[0]
    results = Results()
    if not leader.settings.output_uri:
        return results
    archived = leader.settings.compress_output
    if model:
        _clear_folders(leader)
    skipped = Skipped()
    files = {
        config.host.current: list_outputs(config.paths, skipped, archived=archived) for config in configs
    }
    merge = Merge(files)
    for host, listed in files.items():
        merge.add_files(host, listed)
    shares = merge.plan()
    adders: dict[str, list[Add]] = {}
    for config in configs:
        host = config.host.current
        merge.add_digests(host, _digests(config, files[host], shares[host].compare, skipped))
        for kind, given in _by_kind(files[host], shares[host].give).items():
            if kind == MODEL and not model:
                continue
            if archived:
                adders.setdefault(kind, []).append(_adder(config, kind, given, skipped))
            else:
                _upload_files(config, kind, given, progress, skipped)
                results.uploaded[kind] = join_uri(leader.settings.output_uri, kind)
    for kind, sources in adders.items():
        results.uploaded[kind] = _upload_archive(leader, kind, sources, progress, scratch)
    differing = merge.differing()
    if differing:
        results.warnings.append(differing_message(differing, leader.host.leader))
    results.warnings += skipped.warnings
    if model:
        results.discarded = _discard_earlier(leader, results.uploaded)
        abort_abandoned_uploads(leader.settings.output_uri)
    return results


class HostOutputs:
    """The outputs of one of several hosts, which may share nothing but the output URI.

    Each method is one step. It returns the messages for the leader, whose reply is the argument of the next step. If
    the platform uploads the outputs itself, the steps only ensure that each file is on one host.
    """

    def __init__(self, config: HostConfig) -> None:
        self._config = config
        self._uri = config.settings.output_uri
        self._archived = config.settings.compress_output or not self._uri
        self._skipped = Skipped()
        self._files: list[OutputFile] = []
        self._given: Mapping[str, list[OutputFile]] = {}
        self._parts = ""

    def list(self) -> Iterator[Message]:
        """List the outputs of this host."""
        if self._config.host.leads and self._uri:
            _clear_folders(self._config)
        self._files = list_outputs(self._config.paths, self._skipped, archived=self._archived)
        yield from _batches("files", self._files)

    def share(self, message: Message, progress: Progress) -> Iterator[Message]:
        """Hash the files that other hosts have too, and upload this host's share for the leader."""
        give, compare = (from_ranges(message[name], len(self._files)) for name in ("give", "compare"))
        yield from _batches("digests", _digests(self._config, self._files, compare, self._skipped))
        if not self._uri:
            if not self._config.host.leads:
                self._set_aside(set(give))
            return
        self._given, self._parts = _by_kind(self._files, give), message["parts"]
        for kind, given in self._given.items():
            if not self._archived:
                _upload_files(self._config, kind, given, progress, self._skipped)
            elif not self._config.host.leads:
                self._upload_part(kind, given, progress)

    def assemble(self, message: Message, progress: Progress) -> Results:
        """On the leader, upload the results of all hosts. On other hosts, only collect warnings."""
        results = Results()
        if self._config.host.leads:
            results.warnings += message["warnings"]
            if self._uri:
                self._assemble(message["givers"], results, progress)
        if self._uri:
            results.warnings += self._skipped.warnings
        return results

    def _assemble(self, givers: Mapping[str, Sequence[str]], results: Results, progress: Progress) -> None:
        for kind, hosts in givers.items():
            if self._archived:
                sources = [self._source(kind, host) for host in hosts]
                results.uploaded[kind] = _upload_archive(self._config, kind, sources, progress)
            else:
                results.uploaded[kind] = join_uri(self._uri, kind)
        remove_parts(self._config)
        results.discarded = _discard_earlier(self._config, results.uploaded)
        abort_abandoned_uploads(self._uri)

    def _source(self, kind: str, host: str) -> Add:
        """A function that adds the share of ``host`` to an archive."""
        if host == self._config.host.current:
            return _adder(self._config, kind, self._given[kind], self._skipped)

        def add(archive: ArchiveWriter) -> None:
            with open_store(self._uri).open(_part_key(self._parts, host, kind)) as stream:
                archive.add_archive(stream)

        return add

    def _upload_part(self, kind: str, files: Sequence[OutputFile], progress: Progress) -> None:
        with temporary_folder(self._config.paths.base) as temporary:
            path = temporary / kind
            with ArchiveWriter.open(path, compressed=False) as archive:
                _adder(self._config, kind, files, self._skipped)(archive)
            key = _part_key(self._parts, self._config.host.current, kind)
            open_store(self._uri).upload(path, key, progress)

    def _set_aside(self, given: set[int]) -> None:
        """Move files that an earlier host contributes out of the folders that the platform uploads."""
        paths = self._config.paths
        for index, file in reversed(list(enumerate(self._files))):
            if index in given:
                continue
            path = paths.base / KIND_FOLDERS[file.kind] / file.path
            aside = paths.run / "set-aside" / file.kind / file.path
            if file.type == FOLDER:
                with contextlib.suppress(OSError):  # it has content that this host gives
                    path.rmdir()
                continue
            try:
                aside.parent.mkdir(parents=True, exist_ok=True)
                os.replace(path, aside)
            except OSError:  # another file system, or a full disk
                path.unlink(missing_ok=True)


def remove_parts(config: HostConfig) -> None:
    """Remove the followers' uploads for the leader, of this attempt and earlier ones. Raises StorageError."""
    if config.settings.output_uri and config.host.count > 1 and config.settings.compress_output:
        store = open_store(config.settings.output_uri)
        store.delete([part.key for part in store.list(PART_PREFIX)])


def _part_key(parts: str, host: str, kind: str) -> str:
    return f"{PART_PREFIX}{parts}-{host}-{kind}.tar"


def _batches(kind: str, items: Sequence[Any] | Iterator[Any]) -> Iterator[Message]:
    rest = iter(items)
    while batch := list(islice(rest, BATCH)):
        yield {"type": kind, kind: batch}


def _by_kind(files: Sequence[OutputFile], given: Sequence[int]) -> Mapping[str, list[OutputFile]]:
    found: dict[str, list[OutputFile]] = {}
    for index in given:
        found.setdefault(files[index].kind, []).append(files[index])
    return found


def _skip(kind: str, skipped: Skipped) -> Skip:
    return lambda key, why: skipped.add(f"{KIND_FOLDERS[kind]}/{key}", why)


def _digests(
    config: HostConfig, files: Sequence[OutputFile], compare: Sequence[int], skipped: Skipped
) -> Iterator[str]:
    """The hashes of files, empty for those that can no longer be read."""
    for index in compare:
        output = files[index]
        skip = _skip(output.kind, skipped)
        with output_folder(config.paths, output.kind) as folder, opened(folder, output.path, skip) as file:
            yield sha256_of_open(file) if file else ""


def _adder(config: HostConfig, kind: str, files: Sequence[OutputFile], skipped: Skipped) -> Add:
    def add(archive: ArchiveWriter) -> None:
        with output_folder(config.paths, kind) as folder:
            archive.add_files(folder, files, _skip(kind, skipped))

    return add


def _upload_archive(
    config: HostConfig, kind: str, sources: Sequence[Add], progress: Progress, scratch: Path | None = None
) -> str:
    name = config.settings.output_key(kind)
    with temporary_folder(scratch or config.paths.base) as temporary:
        path = temporary / name
        with ArchiveWriter.open(path, compressed=True) as archive:
            for add in sources:
                add(archive)
        open_store(config.settings.output_uri).upload(path, name, progress)
    return join_uri(config.settings.output_uri, name)


def _upload_files(
    config: HostConfig, kind: str, files: Sequence[OutputFile], progress: Progress, skipped: Skipped
) -> None:
    from cloudtrain.storage.transfer import move_each

    store = open_store(config.settings.output_uri)
    with output_folder(config.paths, kind) as folder:

        def upload(output: OutputFile, report: Progress) -> None:
            with opened(folder, output.path, _skip(kind, skipped)) as file:
                if file:
                    store.upload(file, f"{kind}/{output.path}", report)

        move_each(files, upload, progress)


def _clear_folders(config: HostConfig) -> None:
    """Remove the uncompressed outputs of an earlier attempt, which would otherwise mix with this attempt's."""
    if config.settings.attempt and not config.settings.compress_output:
        store = open_store(config.settings.output_uri)
        for kind in KINDS:
            store.delete([found.key for found in store.list(f"{kind}/")])


def _discard_earlier(config: HostConfig, uploaded: Mapping[str, str]) -> list[str]:
    """Remove the archives of an earlier attempt that this one did not replace. Returns their kinds."""
    missing = [kind for kind in KINDS if kind not in uploaded]
    if not config.settings.attempt or not missing:
        return []
    if config.settings.compress_output:
        store: Store = open_store(config.settings.output_uri)
        store.delete([config.settings.output_key(kind) for kind in missing])
    return missing
