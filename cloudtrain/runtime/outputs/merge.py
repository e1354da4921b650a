"""Plans the merge of several hosts' outputs: which host contributes which file, and which files differ.

If several hosts have the same path, the first of them contributes it. The leader is the first host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Union

from cloudtrain.contract.documents import is_count, is_list_of
from cloudtrain.runtime.outputs.unsupported_outputs import NAMED, shown
from cloudtrain.storage.uri import is_valid_key

FILE, FOLDER, LINK = "file", "folder", "link"

MODEL, OUTPUT = "model", "output"
KIND_FOLDERS = {MODEL: "model", OUTPUT: "output/data"}
"""The folder of each kind below ``/opt/ml``."""
KINDS = tuple(KIND_FOLDERS)

Path = tuple[str, str]
"""The kind and the path of an output."""


class OutputFile(NamedTuple):
    """One file, folder or symbolic link in the model or in the other outputs of a host."""

    kind: str
    path: str
    """Relative to the folder of its kind, with slashes."""
    type: str
    detail: Union[int, str, None]  # noqa: UP007 (evaluated by Python 3.9)
    """The size of a file in bytes, or the target of a link."""

    @property
    def name(self) -> str:
        """The path in the contract, for messages."""
        return shown(f"{KIND_FOLDERS[self.kind]}/{self.path}")


class Share(NamedTuple):
    """One host's contribution to the result. The numbers are indices into the host's list of files."""

    give: list[int]
    """The files that it contributes to the result."""
    compare: list[int]
    """The files to hash, to find out whether they differ between hosts."""


class Merge:
    """The outputs of all hosts.

    Call `add_files` for every host, then `plan`, then `add_digests` for every host, then `differing`.
    """

    def __init__(self, hosts: Iterable[str]) -> None:
        self._files: dict[str, list[OutputFile]] = {host: [] for host in hosts}
        self._digests: dict[str, list[str]] = {host: [] for host in self._files}
        self._shares: dict[str, Share] = {}
        self._conflicts: dict[Path, str] = {}
        """The names of the files that differ, by kind and path."""
        self._pairs: list[tuple[tuple[str, int], tuple[str, int]]] = []
        """Two hosts with the same path, as host and index: the host that contributes it, and another host."""

    def add_files(self, host: str, files: Iterable[Sequence[Any]]) -> None:
        """Add files of ``host``; a folder precedes its content. Raises ValueError for anything else."""
        self._files[host] += map(_output_file, files)

    def plan(self) -> Mapping[str, Share]:
        """The share of every host."""
        givers: dict[Path, tuple[str, int, OutputFile]] = {}
        compared: dict[str, set[int]] = {host: set() for host in self._files}
        for host, files in self._files.items():
            give = []
            blockers: dict[Path, Path | None] = {}
            """For each folder of this host: the file or link of an earlier host that occupies its path, if any."""
            for index, file in enumerate(files):
                folder = (file.kind, file.path.rpartition("/")[0])
                if folder not in blockers:
                    blockers[folder] = _find_blocker(givers, folder)
                    if not blockers[folder]:
                        for key in _with_parents(folder):
                            givers.setdefault(key, (host, -1, OutputFile(*key, FOLDER, None)))
                blocker = blockers[folder]
                if blocker:
                    self._conflicts[blocker] = givers[blocker][2].name
                    continue
                giver, number, other = givers.get((file.kind, file.path), (host, index, file))
                if giver == host:
                    give.append(index)
                    givers[file.kind, file.path] = (host, index, file)
                elif (other.type, other.detail) != (file.type, file.detail):
                    self._conflicts[file.kind, file.path] = file.name
                elif file.type == FILE:
                    compared[giver].add(number)
                    compared[host].add(index)
                    self._pairs.append(((giver, number), (host, index)))
            self._shares[host] = Share(give, [])
        for host, share in self._shares.items():
            share.compare.extend(sorted(compared[host]))
        return self._shares

    def add_digests(self, host: str, digests: Iterable[str]) -> None:
        """Add hashes of ``host``, in the order of its `Share.compare`. Raises ValueError for anything else."""
        digests = list(digests)
        if not is_list_of(str, digests):
            raise ValueError("the hashes of outputs are not strings")
        self._digests[host] += digests

    def differing(self) -> list[str]:
        """The names of the files that differ between the hosts that have them, sorted."""
        found = {host: dict(zip(share.compare, self._digests[host])) for host, share in self._shares.items()}
        for (giver, number), (host, index) in self._pairs:
            if found[giver].get(number) != found[host].get(index):
                file = self._files[host][index]
                self._conflicts[file.kind, file.path] = file.name
        return sorted(self._conflicts.values())

    def givers(self) -> dict[str, list[str]]:
        """The hosts that contribute files, in order, for each kind that has any."""
        found: dict[str, list[str]] = {}
        for host, share in self._shares.items():
            kinds = {self._files[host][index].kind for index in share.give}
            for kind in sorted(kinds):
                found.setdefault(kind, []).append(host)
        return found


def differing_message(differing: Sequence[str], leader: str) -> str:
    """The warning about files that differ between hosts."""
    names = ", ".join(differing[:NAMED])
    rest = f" and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
    return (
        f"{names}{rest} {'differs' if len(differing) == 1 else 'differ'} between hosts: the result has the file of "
        f"the leader, {leader}, or else of the first host that has it. Write it on one host only, or under another "
        "name on each host."
    )


def stray_message(strays: Sequence[str]) -> str:
    """The warning for a job without a model."""
    names = ", ".join(strays[:NAMED]) + (" and more" if len(strays) > NAMED else "")
    return (
        f"the job has no model: the script wrote {names} into its working folder, which is not uploaded. "
        "Write the model to the folder in SM_MODEL_DIR: os.environ['SM_MODEL_DIR'] or environment.model_dir()."
    )


def to_ranges(numbers: Sequence[int]) -> list[list[int]]:
    """Ascending numbers as pairs of start and end, a compact form for consecutive numbers."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number:
            ranges[-1][1] += 1
        else:
            ranges.append([number, number + 1])
    return ranges


def from_ranges(ranges: Iterable[Sequence[int]], count: int) -> list[int]:
    """The inverse of `to_ranges`, for numbers below ``count``. Raises ValueError for anything else."""
    numbers: list[int] = []
    for pair in ranges:
        if not is_list_of(int, pair) or len(pair) != 2 or not 0 <= pair[0] <= pair[1] <= count:
            raise ValueError(f"{pair!r:.100} is not a range of the files of this host")
        numbers += range(*pair)
    if len(numbers) > count:
        raise ValueError("the ranges of files overlap")
    return numbers


def _output_file(record: Any) -> OutputFile:
    """Raises ValueError unless ``record`` is an `OutputFile` whose path is below the folder of its kind."""
    if not isinstance(record, (list, tuple)) or len(record) != 4:
        raise ValueError(f"{record!r:.100} is not an output")
    file = OutputFile(*record)
    fits = is_count(file.detail) if file.type == FILE else file.detail is None
    fits = isinstance(file.detail, str) if file.type == LINK else fits and file.type in (FILE, FOLDER)
    if not fits or file.kind not in KINDS or not isinstance(file.path, str) or not is_valid_key(file.path):
        raise ValueError(f"{record!r:.100} is not an output")
    return file


def _find_blocker(givers: Mapping[Path, tuple[str, int, OutputFile]], folder: Path) -> Path | None:
    """The first of ``folder`` and the folders above it that is a file or a link on an earlier host."""
    return next(
        (key for key in _with_parents(folder) if key in givers and givers[key][2].type != FOLDER), None
    )


def _with_parents(folder: Path) -> Iterator[Path]:
    """``folder`` and the folders above it, outermost first, except the top folder, whose path is empty."""
    kind, path = folder
    end = path.find("/")
    while end >= 0:
        yield kind, path[:end]
        end = path.find("/", end + 1)
    if path:
        yield folder
