"""The job folders of a cluster whose file system is not mounted here, through a shell there.

It needs ``/bin/sh`` and POSIX tools. Every method runs one command, so it takes one round trip. A command whose
connection broke is repeated: all of them are written so that they may run twice.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import posixpath
import shlex
import tarfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import PurePosixPath

from cloudtrain.errors import PlatformError
from cloudtrain.platforms.batch.remote_path import OPEN, OPEN_HINT, OWN_FOLDER, UNSET, prologue, quoted
from cloudtrain.platforms.batch.shell import Answer, ConnectionLost, NoAnswer, Shell
from cloudtrain.runtime.supervisor.folder import DESCRIPTION, EVENTS, READ_SIZE, REQUEST, STOP_MARK, SUMMARY
from cloudtrain.runtime.supervisor.record import LARGEST, RECORD
from cloudtrain.runtime.supervisor.submissions import ANSWERS, SUBMISSIONS
from cloudtrain.storage.atomic import is_temporary, temporary_name
from cloudtrain.storage.disk_reserve import SPARE

SMALL_FILES = (RECORD, DESCRIPTION, STOP_MARK, SUMMARY, REQUEST, SUBMISSIONS, ANSWERS)
"""The files of a job that describe it."""

LARGEST_SMALL = READ_SIZE
"""The size in bytes up to which `SMALL_FILES` are read together."""

EXISTS, MISSING, NOT_REGULAR, TOO_LARGE, INCOMPLETE, NOT_A_FOLDER = 41, 42, 43, 44, 45, 47
"""Exit codes of the scripts; no POSIX tool uses them."""

SLOWEST = 1e5
"""Bytes per second below which an upload is given up."""

_ERRORS = {
    EXISTS: errno.EEXIST,
    MISSING: errno.ENOENT,
    NOT_REGULAR: errno.EINVAL,
    TOO_LARGE: errno.EFBIG,
    NOT_A_FOLDER: errno.ENOTDIR,
}
_WORDS = {
    "No space left on device": errno.ENOSPC,
    "Disk quota exceeded": errno.EDQUOT,
    "Permission denied": errno.EACCES,
    "Operation not permitted": errno.EPERM,
    "Read-only file system": errno.EROFS,
    "Not a directory": errno.ENOTDIR,
    "Is a directory": errno.EISDIR,
    "File name too long": errno.ENAMETOOLONG,
    "Stale file handle": errno.ESTALE,
    "Input/output error": errno.EIO,
}
"""Messages of the tools in the locale C."""

_LOOK = f"""[ -L "$f" ] && exit {NOT_REGULAR}
if [ ! -e "$f" ]; then [ -d "${{f%/*}}" ] || [ ! -e "${{f%/*}}" ] || exit {NOT_A_FOLDER}; exit {MISSING}; fi
[ -f "$f" ] || exit {NOT_REGULAR}
"""
"""Exits unless ``$f`` is a regular file."""


_SHA256 = """sha256() { (sha256sum < "$1" || shasum -a 256 < "$1") 2>/dev/null | head -c 64; }
"""
_IS_INTACT = (
    '{ h=${f%/*}; [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] && [ "$(sha256 "$f")" = "${h##*/}" ]; }'
)
_SHARED_FILES = f"""{_SHA256}for f in runtime sources; do [ ! -d $f ] || own_folder $f; done
for f in runtime/*/* sources/*/*; do case $f in
runtime/*) {_IS_INTACT};; *) [ -f "$f" ] && [ ! -L "$f" ];; esac && [ -O "${{f%/*}}" ] &&
printf '%s\\0' "$f"; done; exit 0
"""
"""Lists the files that several jobs share in cloudtrain's folder on the cluster. Files of other users are left out,
because they are not trusted. A job checks the hash of its source itself."""


class RemoteRoot:
    """A `JobRoot` on a cluster.

    The files of a new folder stay in memory until `publish` sends all of them together.

    Args:
        shell: runs commands on the cluster.
        path: the folder of all jobs, absolute or beginning with a variable such as ``$SCRATCH``.
    """

    def __init__(self, shell: Shell, path: str) -> None:
        self.shell = shell
        self.given = path
        """The path before its variables are expanded."""
        self._drafts: dict[str, dict[str, tuple[bytes, int]]] = {}
        self._provided: set[str] | None = None
        self._is_own = False
        """Whether the folder exists and has been found safe."""
        self._memory = threading.local()

    @cached_property
    def path(self) -> str:
        """The absolute path of the folder of all jobs on the cluster. Queried once. Raises PlatformError."""
        if "$" not in self.given and not self.given.startswith("~"):
            return posixpath.normpath(self.given)
        script = f'printf "%s\\0" "$root"; cd "$root/../.." 2>/dev/null || exit 0\n{_SHARED_FILES}'
        root, *files = map(os.fsdecode, self._run(script, self.shell.place).out.split(b"\0"))
        folder = posixpath.dirname(posixpath.dirname(posixpath.normpath(root)))
        self._provided = {posixpath.join(folder, name) for name in files if name}
        return posixpath.normpath(root)

    @property
    def uri(self) -> str:
        return PurePosixPath(self.path).as_uri()

    def place(self, job_name: str) -> str:
        folder = posixpath.join(self.path, job_name)
        return f"{self.shell.place}:{folder}" if self.shell.place else folder

    def create(self, job_name: str) -> str:
        draft = temporary_name()
        name = shlex.quote(job_name)
        self._run(
            'mkdir -p "$root" && cd "$root" || exit; own_folder .\n'
            f"if [ -e {name} ] || [ -L {name} ]; then exit {EXISTS}; fi",
            job_name,
        )
        self._is_own = True
        self._drafts[draft] = {}
        return draft

    def publish(self, draft: str, job_name: str) -> None:
        """See `JobRoot.publish`. Sends the draft's files, and renames the folder when all of them have arrived."""
        files = self._drafts[draft]
        data = _archive(files)
        mark = f".published-{os.urandom(8).hex()}"
        # a job with the mark was published before the connection broke. If $n exists, mv does not fail but
        # moves the folder into it, from where it is removed. Each attempt has its own folder, and removes it
        script = f"""cd "$root" || exit
d={shlex.quote(draft)}-$$ n={shlex.quote(job_name)}
[ -e "$n/{mark}" ] && exit 0
trap 'rm -rf "$d"' EXIT
trap 'exit 1' HUP PIPE TERM
mkdir -m 700 "$d" && cat > "$d/.files" || exit
[ "$(wc -c < "$d/.files")" -eq {len(data)} ] || exit {INCOMPLETE}
tar -C "$d" -x -o -f "$d/.files" && rm "$d/.files" && : > "$d/{mark}" || exit
if [ -e "$n" ] || [ -L "$n" ]; then exit {EXISTS}; fi
mv "$d" "$n" || exit
if [ -d "$n/$d" ]; then rm -rf "$n/$d"; exit {EXISTS}; fi
"""
        self._run(script, job_name, stdin=data, timeout=60 + len(data) / SLOWEST)
        del self._drafts[draft]

    def remove(self, name: str) -> None:
        if self._drafts.pop(name, None) is not None:
            return
        rest = temporary_name()
        quoted_name = shlex.quote(name)
        self._run(
            f'cd "$root" && [ -e {quoted_name} ] || exit 0; mv {quoted_name} {rest} && rm -rf {rest}', name
        )

    def names(self) -> Iterable[str]:
        script = f"""cd "$root" 2>/dev/null || exit 0
for f in */{RECORD}; do if [ -e "$f" ] || [ -L "$f" ]; then printf '%s\\0' "${{f%/*}}"; fi; done
"""
        found = self._run(script, "").out.split(b"\0")
        return sorted(name for name in map(os.fsdecode, found) if name and not is_temporary(name))

    def read(self, path: str) -> bytes:
        if (content := self._in_draft(path)) is not None or (content := self._remembered(path)) is not None:
            return content
        script = f'{_LOOK}[ "$(wc -c < "$f")" -le {LARGEST} ] || exit {TOO_LARGE}\ncat < "$f"'
        return self._run(_at(path) + script, path).out

    def read_part(self, path: str, start: int) -> bytes:
        if (content := self._remembered(path)) is not None:
            return content[start : start + READ_SIZE]
        script = f'{_LOOK}tail -c +{start + 1} < "$f" | head -c {READ_SIZE}'
        return self._run(_at(path) + script, path).out

    def write(self, path: str, data: bytes, *, mode: int = 0o600) -> None:
        """See `JobRoot.write`. If the disk is full, an empty file takes the place of one of the job's spare files."""
        draft, _, rest = path.partition("/")
        if draft in self._drafts:
            self._drafts[draft][rest] = (data, mode)
            return
        self.forget()
        script = f"""{_at(path)}[ -d "$f" ] && exit {NOT_REGULAR}
t="${{f%/*}}/{temporary_name()}"
[ -d "${{f%/*}}" ] || exit {MISSING}
trap 'rm -f "$t"' EXIT
put() {{ cat > "$t"; }}
{_first_or_spare(data)}
[ "$(wc -c < "$t")" -eq {len(data)} ] || exit {INCOMPLETE}
chmod {mode:o} "$t" && mv -f "$t" "$f"
"""
        self._run(script, path, stdin=data, timeout=60 + len(data) / SLOWEST)

    def write_private(self, path: str, data: bytes) -> None:
        """Write a file that only its owner can read, like every file here."""
        self.write(path, data)

    def provide(self, path: str, content: Callable[[], bytes]) -> None:
        """Write a file whose name contains a hash of its content, unless it exists.

        The first call lists all such files that exist.

        Args:
            path: absolute, on the cluster: ``<folder>/runtime/<hash>/<name>``, or in ``sources``.
            content: called only if the file does not exist.
        """
        if self._provided is None:
            self._provided = self._existing_files(path.rsplit("/", 3)[0])
        if path in self._provided:
            return
        data = content()
        script = f"""f={shlex.quote(path)} t={shlex.quote(posixpath.dirname(path))}/{temporary_name()}
mkdir -p "${{f%/*}}" || exit
own_folder "${{f%/*}}"
{_SHA256}{_IS_INTACT} && exit 0
trap 'rm -f "$t"' EXIT
cat > "$t" || exit
[ "$(wc -c < "$t")" -eq {len(data)} ] || exit {INCOMPLETE}
chmod 644 "$t" && mv -f "$t" "$f"
"""
        self._run(script, path, stdin=data, timeout=60 + len(data) / SLOWEST)
        self._provided.add(path)

    def _existing_files(self, folder: str) -> set[str]:
        script = f"cd {shlex.quote(folder)} 2>/dev/null || exit 0\n{_SHARED_FILES}"
        found = self._run(script, folder).out.split(b"\0")
        return {posixpath.join(folder, os.fsdecode(name)) for name in found if name}

    @contextlib.contextmanager
    def remembering(self, job_name: str | None) -> Iterator[None]:
        """Read the small files of a job, or of all jobs, with one command, and cache them within the context.

        The cache is this thread's. Raises PlatformError.
        """
        found = self.snapshot(job_name)
        self._memory.snapshot = (job_name, found)
        try:
            yield
        finally:
            self.forget()

    def forget(self) -> None:
        """Drop the cached files, also within `remembering`."""
        self._memory.snapshot = None

    def snapshot(self, job_name: str | None) -> dict[str, bytes | None]:
        """The small files of a job, or of all jobs, and a job's events.

        A file that does not exist is missing from the result; anything but a regular file is None. A file of more than
        `LARGEST_SMALL` bytes is left out, and `read` requests it separately: one damaged job can neither hide the
        others nor fill the memory.
        """
        folder = "./*" if job_name is None else f"./{shlex.quote(job_name)}"
        names = SMALL_FILES if job_name is None else (*SMALL_FILES, EVENTS)
        words = " ".join(f"{folder}/{name}" for name in names)
        # tar reports an error for patterns and names that match no file
        script = f"""cd "$root" 2>/dev/null || exit 0
big=$(find {words} -prune -type f -size +{LARGEST_SMALL // 512} 2>/dev/null)
if [ "$big" ]; then for f in {words}; do case "
$big
" in *"
$f
"*) ;; *) set -- "$@" "$f";; esac; done; else set -- {words}; fi
printf '%s\\0' "$big"
[ $# -eq 0 ] || {{ tar -c -f - "$@" 2>/dev/null; [ $? -le 2 ]; }}"""
        answer = self._run(script, "", timeout=300 if job_name is None else 60)
        big, _, data = answer.out.partition(b"\0")
        self._memory.big = {posixpath.normpath(os.fsdecode(name)) for name in big.split(b"\n") if name}
        found: dict[str, bytes | None] = {}
        if not data:
            return found
        try:
            with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
                for member in archive:
                    content = archive.extractfile(member) if member.isreg() else None
                    found[posixpath.normpath(member.name)] = content.read() if content else None
        except tarfile.TarError as error:
            raise PlatformError(
                f"the answer of tar on {self.shell.place or 'this machine'} is not an archive: {error}",
                hint="Is tar another program there, or an old one? tar --version shows it.",
            ) from error
        return found

    def _remembered(self, path: str) -> bytes | None:
        """The cached content of a file; None if it is not cached. Raises OSError as reading does."""
        job_name, found = getattr(self._memory, "snapshot", None) or (None, None)
        folder, _, file = path.partition("/")
        if found is None or job_name not in (None, folder) or (file not in SMALL_FILES and path not in found):
            return None
        if path in self._memory.big:
            return None
        if path not in found:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        content: bytes | None = found[path]
        if content is None:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return content

    def _in_draft(self, path: str) -> bytes | None:
        draft, _, rest = path.partition("/")
        if draft not in self._drafts:
            return None
        if rest not in self._drafts[draft]:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._drafts[draft][rest][0]

    def _run(self, script: str, what: str, *, stdin: bytes = b"", timeout: float = 60) -> Answer:
        """Run a script that may be repeated. Raises OSError for errors of its tools, PlatformError for others."""
        begin = f"LC_ALL=C; export LC_ALL; umask 077\n{prologue(self.given)}root={quoted(self.given)}\n{OWN_FOLDER}"
        if not self._is_own:  # a command must not read files that another user may have put there
            begin += '[ ! -d "$root" ] || own_folder "$root"\n'
        for is_last in (False, True):
            try:
                answer = self.shell.run(begin + script, stdin=stdin, timeout=timeout)
            except ConnectionLost as error:
                if is_last or isinstance(error, NoAnswer):
                    raise
                continue
            if answer.code != INCOMPLETE or is_last:
                break
        if answer.code == 0:
            return answer
        raise self._error(answer, what)

    def _error(self, answer: Answer, what: str) -> Exception:
        said = answer.err.decode("utf-8", "replace").strip()
        where = f"{self.shell.place}:{self.given}/{what}"
        if answer.code == UNSET:
            return PlatformError(
                f"{said} is not set on {self.shell.place or 'this machine'}",
                hint=f"The folder of the jobs is {self.given}: name another with platform_options.folder.",
            )
        if answer.code == OPEN:
            place = f"{self.shell.place}: " if self.shell.place else ""
            return PlatformError(
                f"{place}{said.splitlines()[-1]}; they could run code as you", hint=OPEN_HINT
            )
        if answer.code in _ERRORS:
            number = _ERRORS[answer.code]
            return OSError(number, os.strerror(number), where)
        for words, number in _WORDS.items():
            if words in said:
                return OSError(number, os.strerror(number), where)
        last = said.splitlines()[-1] if said else f"exit code {answer.code}"
        return PlatformError(f"{where} cannot be used: {last}")


def _at(path: str) -> str:
    return f'f="$root"/{shlex.quote(path)}\n'


def _first_or_spare(data: bytes) -> str:
    """The line that writes ``$t``. Only empty data can be written twice: stdin cannot be read a second time."""
    if data:
        return "put || exit"
    return f'put || {{ for s in "${{f%/*}}"/{SPARE}*; do rm -f "$s"; put && break; done; }} || exit'


def _archive(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (data, mode) in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode, member.mtime = len(data), mode, int(time.time())
            archive.addfile(member, io.BytesIO(data))
    return buffer.getvalue()
