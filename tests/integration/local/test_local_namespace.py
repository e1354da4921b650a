"""A process moves to a namespace in which ``/opt/ml`` is a folder of its choice: as root, and as an ordinary user."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ordinary_user import USER, as_user, folder_of_user, in_shell, needs_root

from cloudtrain.platforms.local import namespace

MACHINES = {
    "with /opt/ml": "mkdir /opt/ml; echo old > /opt/ml/old",
    "without /opt/ml": ":",
    "/opt/ml is a link": "mkdir /opt/elsewhere; ln -s elsewhere /opt/ml",
}
NO_NAMESPACES = {
    "root in a container": ["setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"],
    "an ordinary user": [
        *(*as_user(), "unshare", "--user", "--map-current-user", "--keep-caps", "sh", "-c"),
        'echo 0 > /proc/sys/user/max_user_namespaces; exec setpriv --ambient-caps=-all --inh-caps=-all -- "$@"',
        "sh",
    ],
}
"""Commands that start another one where it may not have a namespace."""

ENTERS = """
import json, os, sys
from pathlib import Path
from cloudtrain.platforms.local import namespace

folder = Path(sys.argv[1])
try:
    namespace.enter(folder)
except OSError as error:
    sys.exit(namespace.reason(error))
(Path("/opt/ml") / "made").write_text("made")
try:
    os.mkdir("/opt/new")
    creates = True
except OSError:
    creates = False
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(json.dumps({
    "user": [os.getuid(), os.geteuid(), os.getgid(), os.getegid()],
    "opt": sorted(os.listdir("/opt")),
    "ml": sorted(os.listdir("/opt/ml")),
    "kept": [Path("/opt/tool/file").read_text(), Path("/opt/note").read_text(), os.readlink("/opt/link")],
    "creates": creates,
    "capabilities": int(status["CapEff"], 16),
}))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    with folder_of_user() as path:
        yield path


def enters(folder: Path, *before: str) -> subprocess.CompletedProcess[str]:
    """Run `ENTERS`, started by the command ``before``."""
    return subprocess.run(
        [*before, sys.executable, "-c", ENTERS, str(folder)],
        env={**os.environ, "PYTHONPATH": str(Path(namespace.__file__).parents[3])},
        cwd="/",
        capture_output=True,
        text=True,
    )


def on_machine(kind: str, user: str) -> list[str]:
    """The command that starts another one on a machine with its own /opt, and then lists /opt on stderr."""
    opt = f"""
        mount -t tmpfs -o mode=755 opt /opt
        mkdir /opt/tool; echo in-tool > /opt/tool/file; echo note > /opt/note; ln -s tool /opt/link
        {MACHINES[kind]}
    """
    listing = "ls -R /opt >&2"
    return in_shell(f'{opt}\n"$@"\n{listing}') if user == "root" else as_user(opt, listing)


@needs_root
@pytest.mark.parametrize("user", ["root", "an ordinary user"])
@pytest.mark.parametrize("machine", MACHINES)
def test_opt_ml_is_the_folder(folder: Path, machine: str, user: str) -> None:
    """Everything else in /opt stays, and on the machine itself nothing changes."""
    done = enters(folder, *on_machine(machine, user))
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    assert seen["user"] == [0 if user == "root" else USER] * 4
    assert seen["ml"] == ["made"]
    assert {"link", "ml", "note", "tool"} <= set(seen["opt"])
    assert seen["kept"] == ["in-tool\n", "note\n", "tool"]
    assert bool(seen["capabilities"]) == (user == "root")
    assert (folder / "made").exists()
    assert "made" not in done.stderr.split()
    # where /opt had to be replaced, nothing that a script creates there can get lost
    assert seen["creates"] == (user == "root" and machine == "with /opt/ml")


@needs_root
@pytest.mark.parametrize("user", NO_NAMESPACES)
def test_a_machine_that_permits_no_namespace_is_reported(folder: Path, user: str) -> None:
    done = enters(folder, *NO_NAMESPACES[user])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("the kernel does not permit this user a namespace"), done.stderr
    assert "No space left" not in done.stderr


def test_a_job_does_not_hide_what_it_needs(tmp_path: Path) -> None:
    """Files in the machine's own /opt/ml, also behind a link."""
    (tmp_path / "link").symlink_to("/opt/ml/input")
    assert namespace.obstacle([tmp_path, "/opt/mlflow", "/opt/tool/bin/python"]) == ""
    for path in ("/opt/ml", "/opt/ml/venv/bin/python", tmp_path / "link" / "data"):
        assert f"needs {path}, which is in the machine's /opt/ml" in namespace.obstacle([tmp_path, path])
