"""Runs pip or uv, and derives progress and failure reports from its output."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import site
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

from cloudtrain._secrets.urls import hide_credentials
from cloudtrain._system.patterns import pattern
from cloudtrain.contract import FailureClass, FailureReport
from cloudtrain.runtime.run_folder import RANK_PROGRAM

Say = Callable[[str], object]
"""Called with one line about the progress."""

PIP_OPTIONS = ("--disable-pip-version-check", "--no-input", "--progress-bar=off")
TAIL_LINES = 20
LONGEST = 200
"""The most characters of a line of progress."""

_PROGRESS = pattern(
    r"\s*(?:Collecting|Downloading(?!.*\.metadata)|Building wheel for .* started|Building (?!wheel)"
    r"|Installing collected|Resolved|Prepared)\b"
)
_DISK_FULL = "No space left on device"
_FAILED_BUILD = pattern(
    r"\s*(?:ERROR: Failed building wheel|Running setup\.py install) for ([^\s:]+)|(?:Collecting|Processing) (\S+)"
)
"""Lines that name the package being built. pip 23.0 runs ``setup.py install`` if the package ``wheel`` is missing."""
_END_OF_BUILD = "[end of output]"
_GIT = "Running command git "

_PROBE = """
import importlib.util, json, site, sys
user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
has_pip = importlib.util.find_spec("pip") is not None
print(json.dumps([sys.version, sys.prefix, site.getsitepackages(), user, has_pip]))
"""


class RequirementsFailed(Exception):
    """The requirements could not be installed; carries the report."""

    def __init__(self, message: str, hint: str, code: int = 1, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.report = FailureReport(
            failure_class=FailureClass.REQUIREMENTS,
            message=message,
            hint=hint,
            exit_code=code,
            log_tail=tuple(lines[-TAIL_LINES:]),
            phase="requirements",
        )


@dataclass(frozen=True)
class Interpreter:
    """The Python interpreter on top of which requirements are installed."""

    path: str
    version: str
    prefix: str
    site_packages: Sequence[str]
    user_site: Sequence[str]
    """The folders of user packages; empty if they are disabled."""
    has_pip: bool

    @classmethod
    def inspect(cls, path: str) -> Interpreter:
        """Raises RequirementsFailed if the interpreter does not run."""
        if path == sys.executable:  # no process: this runs before every launch
            user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
            has_pip = importlib.util.find_spec("pip") is not None
            return cls(path, sys.version, sys.prefix, site.getsitepackages(), user, has_pip)
        # in /, because the working folder may contain a module that shadows one of the standard library
        lines = run([path, "-c", _PROBE], "/", f"{path} does not run")
        return cls(path, *json.loads(lines[-1]))

    @property
    def parents(self) -> list[str]:
        """The folders of its packages."""
        return [folder for folder in (*self.site_packages, *self.user_site) if os.path.isdir(folder)]


@dataclass(frozen=True)
class Part:
    """A part of the source to install, with the names for a report if the installation fails."""

    arguments: tuple[str, ...]
    name: str
    file: str
    """The file of the source to correct after a failure."""
    try_first: str
    """The command with which a user can try the installation."""


REQUIREMENTS = Part(
    ("-r", "requirements.txt"), "requirements.txt", "requirements.txt", "pip install -r requirements.txt"
)


def package_part(file: str) -> Part:
    """The package in the source, which ``file`` (``setup.py`` or ``pyproject.toml``) describes."""
    return Part((".",), f"the package of the source ({file})", file, "pip install . in the source folder")


def install_part(part: Part, python: str, base: Interpreter, code: str, say: Say) -> None:
    """Install a part of the source into ``python``, which is ``base`` or an environment on top of it.

    Raises:
        RequirementsFailed: the report contains the installer's last lines.
    """
    command = [*_installer(part, python, base), *part.arguments]
    failure = f"{part.name} cannot be installed"
    # run it through the rank program, which dies with this process
    run([sys.executable, RANK_PROGRAM, "--", *command], code, failure, part=part, say=say)


def _installer(part: Part, python: str, base: Interpreter) -> list[str]:
    if base.has_pip:
        # isolated (-I), because the code folder may contain a json.py
        return [python, "-I", "-m", "pip", "install", *PIP_OPTIONS]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", f"--python={python}"]
    if importlib.util.find_spec("pip") is not None:  # this interpreter's pip can install into another one
        return [sys.executable, "-I", "-m", "pip", f"--python={python}", "install", *PIP_OPTIONS]
    raise RequirementsFailed(
        f"{part.name} cannot be installed: {base.path} has no pip, and there is no uv on the PATH",
        f"Install pip: {base.path} -m ensurepip",
    )


def run(
    command: Sequence[str], cwd: str, failure: str, *, part: Part | None = None, say: Say = lambda line: None
) -> list[str]:
    """Run a command and return the lines of its output. Raises RequirementsFailed with ``failure`` and the reason."""
    # the command must not run as a rank, even if this job was started inside a rank of another job
    environment = {name: value for name, value in os.environ.items() if name != "CLOUDTRAIN_RUN_DIR"}
    lines: list[str] = []
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except OSError as error:
        raise RequirementsFailed(f"{failure}: {error.strerror}", "Check platform_options.python.") from None
    with process:
        assert process.stdout
        for raw in process.stdout:
            line = hide_credentials(raw.decode("utf-8", "backslashreplace").rstrip())
            lines.append(line)
            if _PROGRESS.match(line):
                say(line.strip()[:LONGEST])
    lines = [line for line in lines if line.strip()]
    if process.returncode:
        why, hint = _shortage(lines, process.returncode) or _reason(lines, part)
        raise RequirementsFailed(f"{failure}: {why}", hint, process.returncode, lines)
    return lines


def _shortage(lines: Sequence[str], code: int) -> tuple[str, str] | None:
    """The reason and a hint if the installer failed for lack of memory or disk space; otherwise None."""
    if code < 0:
        why = f"the installer was killed by signal {-code}"
        return why, "If the host has too little memory, use a larger one. Otherwise, submit the job again."
    full = next((line for line in lines if _DISK_FULL in line), "")
    if not full:
        return None
    return full.strip(), (
        "Free disk space on the host, or give it more (volume_size on SageMaker, platform_options.disk on Kubernetes). "
        "On your own machine, cloudtrain clean --caches removes the environments of earlier jobs."
    )


def _reason(lines: Sequence[str], part: Part | None) -> tuple[str, str]:
    """The reason why the installer failed, and a hint."""
    errors = [line for line in lines if line.startswith("ERROR:")]
    of_git = [after.strip() for line, after in zip(lines, lines[1:]) if line.strip().startswith(_GIT)]
    why = of_git[-1] if of_git else "see the last lines of the log"
    why = errors[-1].partition(":")[2].strip() if errors else why
    if part is None:
        return why, ""
    ends = [number for number, line in enumerate(lines) if line.strip() == _END_OF_BUILD]
    if ends and ends[-1] > 0:
        # the last line of the program that builds a package
        why = re.sub(r"^\s*(?:ERROR: )?", "", lines[ends[-1] - 1])
        if part is REQUIREMENTS:
            failed = [match[1] or match[2] for line in lines if (match := _FAILED_BUILD.match(line))]
            why = f"{failed[-1]} cannot be built: {why}" if failed else why
            return why, (
                "A package was found, but its own setup failed: it may need a compiler, a system library or another "
                f"version of Python. Try it first: {part.try_first}"
            )
        return why, f"Fix {part.file}. Try it first: {part.try_first}"
    where = "the line of requirements.txt that it names" if part is REQUIREMENTS else part.file
    return why, f"Fix {where}. Try it first: {part.try_first}"
