"""The claim of a submission on the folder of its job, so that two running submissions never share a folder.

A user may resubmit the script by hand, or a scheduler may restart a job after it has lost the first node. The running
submission touches its claim regularly; another submission watches the claim before it takes the folder over.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

from cloudtrain._system.files import READ_REGULAR, open_regular
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.errors import PlatformError
from cloudtrain.runtime.supervisor.folder import CLAIM
from cloudtrain.storage.atomic import replace_file
from cloudtrain.storage.disk_reserve import is_full

BEAT_SECONDS = 2.0
WATCH_SECONDS = 20.0
"""How long a claim must stay untouched before its submission counts as ended."""
FRESH_SECONDS = 5 * BEAT_SECONDS
"""How long a submission counts as alive after it has touched its claim, without other evidence."""
SETTLE_SECONDS = 1.0
"""The longest time between two submissions that both take over the same claim."""
LARGEST = 1 << 16


class Claim:
    """The claim of this submission, as a context manager.

    Args:
        number: the scheduler's number of this submission. A scheduler restarts a number only after its end.
    """

    def __init__(self, folder: Path, number: str) -> None:
        self._path = folder / CLAIM
        self._own = {"number": number, "host": socket.gethostname(), "token": os.urandom(8).hex()}
        self._ended = threading.Event()
        self.other = ""
        """The submission that holds the folder; empty if this one does."""

    def __enter__(self) -> Claim:
        """Raises PlatformError if it cannot be determined whether another submission holds the folder."""
        deadline = time.monotonic() + WATCH_SECONDS
        while True:
            try:
                self.other = self._take()
                break
            except OSError as error:
                if is_full(error):  # let the job run: it can still end properly
                    return self
                if time.monotonic() > deadline:
                    raise PlatformError(f"{self._path} cannot be read: {error.strerror}") from error
                time.sleep(BEAT_SECONDS)
        if not self.other:
            threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        with contextlib.suppress(OSError):
            if not self.other and self._holder()[0] == self._own:
                self._path.unlink()

    def _take(self) -> str:
        content = json.dumps(self._own).encode()
        try:
            with open(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            return ""
        except FileExistsError:
            holder, seen = self._holder()
        if holder.get("number") == self._own["number"]:
            replace_file(self._path, content, mode=0o600)
            return ""
        deadline = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < deadline:
            time.sleep(BEAT_SECONDS / 2)
            if self._holder() != (holder, seen):
                return _name(self._holder()[0])
        replace_file(self._path, content, mode=0o600)
        time.sleep(SETTLE_SECONDS)
        holder, _ = self._holder()
        return "" if holder == self._own else _name(holder)

    def _holder(self) -> tuple[dict[str, str], int]:
        """The content of the claim, and when it was touched. Opens it, so that a network file system refreshes both."""
        try:
            with open(open_regular(self._path, READ_REGULAR), "rb") as file:
                touched = os.fstat(file.fileno()).st_mtime_ns
                content = Fields(parse_json(file.read(LARGEST)))
                return {name: content.text(name, "") for name in self._own}, touched
        except (FileNotFoundError, ValueError):  # it is being written, or was removed
            return {}, 0

    def _beat(self) -> None:
        """Touch the claim. If another submission has taken it over, end this process, and its nodes with it."""
        while not self._ended.wait(BEAT_SECONDS):
            with contextlib.suppress(OSError):
                os.utime(self._path)
                holder, _ = self._holder()
                if holder and holder != self._own:
                    sys.stderr.write(f"{_name(holder)} has taken the job over: this one ends\n")
                    sys.stderr.flush()
                    os._exit(1)


def is_claimed(folder: Path) -> bool:
    """Whether a submission has touched its claim on the folder of a job in the last `FRESH_SECONDS`."""
    try:
        with open(open_regular(folder / CLAIM, READ_REGULAR), "rb") as file:
            touched = os.fstat(file.fileno()).st_mtime
    except OSError:
        return False
    return abs(time.time() - touched) < FRESH_SECONDS


def _name(holder: dict[str, str]) -> str:
    return f"job {holder.get('number', 'of another number')} on {holder.get('host', 'another node')}"
