"""Installs the script's requirements, once per host, before the launch.

In a container, they are installed into the image's Python. On a user's machine (`Settings.requirements_cache` is set),
no existing environment is modified: they are installed into a virtual environment on top of the script's interpreter.
The environment is cached under a hash of its requirements.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import site
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.run_folder import RANK_PROGRAM

PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--quiet")

_PROBE = """
import importlib.util, json, site, sys
user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
has_pip = importlib.util.find_spec("pip") is not None
print(json.dumps([sys.version, sys.prefix, site.getsitepackages(), user, has_pip]))
"""


class RequirementsFailed(Exception):
    """The requirements could not be installed; carries the report."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


@dataclass(frozen=True)
class Interpreter:
    """The Python that requirements are installed on top of."""

    path: str
    version: str
    prefix: str
    site_packages: Sequence[str]
    user_site: Sequence[str]
    """Empty if user packages are disabled."""
    has_pip: bool

    @classmethod
    def inspect(cls, path: str) -> Interpreter:
        """Raises RequirementsFailed if the interpreter does not run."""
        if path == sys.executable:  # no process: this runs before every launch
            user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
            has_pip = importlib.util.find_spec("pip") is not None
            return cls(path, sys.version, sys.prefix, site.getsitepackages(), user, has_pip)
        # in /: the working folder may contain a module that shadows the standard library's
        output = _run([path, "-c", _PROBE], "/", f"{path} does not run")
        return cls(path, *json.loads(output.splitlines()[-1]))


def install(code: Path, *, package: bool, cache: str = "", python: str = sys.executable) -> str:
    """Install ``requirements.txt``, and the package in the code folder, and return the interpreter to use.

    Args:
        package: whether the code folder is a package to install.
        cache: the folder of cached environments; empty: install into ``python`` itself.
        python: the interpreter that runs the script.

    Raises:
        RequirementsFailed: the installation failed; the report contains the installer's last lines.
    """
    wanted = [*(["-r", "requirements.txt"] if (code / "requirements.txt").is_file() else [])]
    wanted += ["."] if package else []
    if not wanted:
        return python
    base = Interpreter.inspect(python)
    if not cache:
        _install(python, base, wanted, code)
        return python
    environment = Path(cache) / _fingerprint(base, code, wanted)
    with _locked(environment.with_suffix(".lock")):
        overlay = str(environment / "bin" / "python")
        if not (environment / "complete").exists():
            shutil.rmtree(environment, ignore_errors=True)
            try:
                _make_overlay(environment, base)
                _install(overlay, base, wanted, code)
            except BaseException:
                shutil.rmtree(environment, ignore_errors=True)
                raise
            (environment / "complete").touch()
    return overlay


def _make_overlay(environment: Path, base: Interpreter) -> None:
    """Create a virtual environment that also sees every package of ``base``, including pip."""
    if base.path == sys.executable:
        import venv

        venv.EnvBuilder(with_pip=False, symlinks=True).create(environment)
    else:
        command = [base.path, "-I", "-m", "venv", "--without-pip", "--symlinks", str(environment)]
        _run(command, "/", f"{base.path} cannot create a virtual environment")
    [packages] = environment.glob("lib/python*/site-packages")
    parents = [*base.site_packages, *base.user_site]
    lines = [f"import site; site.addsitedir({parent!r})" for parent in parents if os.path.isdir(parent)]
    (packages / "_parent.pth").write_text("\n".join(lines) + "\n")


def _fingerprint(base: Interpreter, code: Path, wanted: Sequence[str]) -> str:
    """Changes with the requirements and with the interpreter's own packages."""
    digest = hashlib.sha256(f"{base.version}\0{base.prefix}\0{wanted}".encode())
    for parent in base.site_packages:
        digest.update(f"{parent}\0{os.stat(parent).st_mtime_ns if os.path.isdir(parent) else 0}".encode())
    text = "".join(path.read_text(errors="replace") for path in sorted(code.glob("*.txt")))
    digest.update(text.encode())
    if "." in wanted or any(line.lstrip().startswith(("-", ".", "/", "file:")) for line in text.splitlines()):
        # the requirements refer to files of the source
        for path in sorted(path for path in code.rglob("*") if path.is_file()):
            digest.update(str(path.relative_to(code)).encode() + path.read_bytes())
    return digest.hexdigest()[:32]


def _install(python: str, base: Interpreter, wanted: Sequence[str], code: Path) -> None:
    """Install into ``python``, which is ``base`` or an environment on top of it."""
    command = [*_installer(python, base), *wanted]
    # through the rank program, which dies with this process
    _run([sys.executable, RANK_PROGRAM, "--", *command], str(code), "requirements.txt cannot be installed")


def _installer(python: str, base: Interpreter) -> list[str]:
    if base.has_pip:
        # isolated: the code folder may contain a json.py
        return [python, "-I", "-m", "pip", "install", *PIP_OPTIONS]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", f"--python={python}", "--quiet"]
    if importlib.util.find_spec("pip") is not None:  # for another interpreter
        return [sys.executable, "-I", "-m", "pip", f"--python={python}", "install", *PIP_OPTIONS]
    raise RequirementsFailed(
        _report(
            f"requirements.txt cannot be installed: {base.path} has no pip, and there is no uv on the PATH",
            f"Install pip: {base.path} -m ensurepip",
        )
    )


def _run(command: Sequence[str], cwd: str, failure: str) -> str:
    """Run to the end and return the output. Raises RequirementsFailed, with ``failure`` and the reason."""
    # neither is a rank, even if this job was started inside a rank of another job
    environment = {name: value for name, value in os.environ.items() if name != "CLOUDTRAIN_RUN_DIR"}
    try:
        process = subprocess.run(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError as error:
        raise RequirementsFailed(
            _report(f"{failure}: {error.strerror}", "Check platform_options.python.")
        ) from None
    output = process.stdout.decode("utf-8", "backslashreplace").strip()
    if process.returncode:
        lines = tuple(output.splitlines())
        errors = [line for line in lines if line.startswith("ERROR:")]
        why = errors[-1].partition(":")[2].strip() if errors else "see the last lines of the log"
        hint = "Fix the line of requirements.txt that it names. Try it first: pip install -r requirements.txt"
        raise RequirementsFailed(_report(f"{failure}: {why}", hint, process.returncode, lines[-20:]))
    return output


def _report(message: str, hint: str, code: int = 1, lines: tuple[str, ...] = ()) -> FailureReport:
    return FailureReport(
        failure_class=FailureClass.REQUIREMENTS,
        message=message,
        hint=hint,
        exit_code=code,
        log_tail=lines,
        phase="requirements",
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Serialise installations by the hosts of one machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
