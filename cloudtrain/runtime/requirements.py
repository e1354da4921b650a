"""Installs what the script needs, once a host, before the launch.

In a container that is ``pip install -r requirements.txt`` into the image's Python. On a machine that is
somebody's own (`Settings.requirements_cache` is set) nothing of theirs is touched: the packages go into an
environment of their own on top of this one, kept in the cache under the hash of what was asked for.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.run_folder import RANK_PROGRAM

PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--quiet")


class RequirementsFailed(Exception):
    """pip did not install the requirements; carries the report."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


def install(code: Path, *, package: bool, cache: str = "") -> str:
    """Install ``requirements.txt`` of the code folder (and the package in it) and name the Python to use.

    Raises:
        RequirementsFailed: pip said no; the report holds the last lines of what it said.
    """
    wanted = [*(["-r", "requirements.txt"] if (code / "requirements.txt").is_file() else [])]
    wanted += ["."] if package else []
    if not wanted:
        return sys.executable
    if not cache:
        _pip(sys.executable, wanted, code)
        return sys.executable
    environment = Path(cache) / _fingerprint(code, wanted)
    with _locked(environment.with_suffix(".lock")):
        python = environment / "bin" / "python"
        if not (environment / "complete").exists():
            shutil.rmtree(environment, ignore_errors=True)
            _make_overlay(environment)
            try:
                _pip(str(python), wanted, code)
            except BaseException:
                shutil.rmtree(environment, ignore_errors=True)
                raise
            (environment / "complete").touch()
    return str(python)


def _make_overlay(environment: Path) -> None:
    """A virtual environment that also sees everything this Python sees, pip included."""
    import site
    import venv

    venv.EnvBuilder(with_pip=False, symlinks=True).create(environment)
    [packages] = environment.glob("lib/python*/site-packages")
    parents = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    lines = [f"import site; site.addsitedir({parent!r})" for parent in parents if os.path.isdir(parent)]
    (packages / "_parent.pth").write_text("\n".join(lines) + "\n")


def _fingerprint(code: Path, wanted: Sequence[str]) -> str:
    """Changes with what is asked for and with the environment that it is laid upon."""
    import site

    digest = hashlib.sha256(f"{sys.version}\0{sys.prefix}\0{wanted}".encode())
    for parent in site.getsitepackages():
        digest.update(f"{parent}\0{os.stat(parent).st_mtime_ns if os.path.isdir(parent) else 0}".encode())
    text = "".join(path.read_text(errors="replace") for path in sorted(code.glob("*.txt")))
    digest.update(text.encode())
    if "." in wanted or any(line.lstrip().startswith(("-", ".", "/", "file:")) for line in text.splitlines()):
        # they name files of this very source: it is part of what is asked for
        for path in sorted(path for path in code.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(code)).encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _pip(python: str, wanted: Sequence[str], code: Path) -> None:
    if importlib.util.find_spec("pip") is not None:
        # isolated: the user may have a json.py in the code folder
        command = [python, "-I", "-m", "pip", "install", *PIP_OPTIONS, *wanted]
    elif uv := shutil.which("uv"):
        command = [uv, "pip", "install", f"--python={python}", "--quiet", *wanted]
    else:
        raise RequirementsFailed(_report("neither pip nor uv is installed", (), 1))
    process = subprocess.run(
        [sys.executable, RANK_PROGRAM, "--", *command],  # so that it ends when we do
        cwd=code,
        # pip is no rank, also where a job is run inside of a rank of another job
        env={name: value for name, value in os.environ.items() if name != "CLOUDTRAIN_RUN_DIR"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    lines = tuple(process.stdout.decode("utf-8", "backslashreplace").strip().splitlines())
    if process.returncode:
        errors = [line for line in lines if line.startswith("ERROR:")]
        why = errors[-1].partition(":")[2].strip() if errors else "see the last lines of the log"
        raise RequirementsFailed(_report(why, lines[-20:], process.returncode))


def _report(why: str, lines: tuple[str, ...], code: int) -> FailureReport:
    return FailureReport(
        failure_class=FailureClass.REQUIREMENTS,
        message=f"requirements.txt cannot be installed: {why}",
        hint="Mend the line of requirements.txt that it names; try it first with: pip install -r requirements.txt",
        exit_code=code,
        log_tail=lines,
        phase="requirements",
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hosts on one machine install one after the other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
