"""Checks of this machine that find, before a job is submitted, what would make it fail."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement

from cloudtrain.contract.opt_ml import LARGEST, SUFFIXES, advice, find_uses, show_uses
from cloudtrain.contract.paths import DEFAULT_BASE
from cloudtrain.contract.request_body import request_settings
from cloudtrain.errors import StorageError
from cloudtrain.packaging.cache import cached_archive
from cloudtrain.packaging.imports import read_sources
from cloudtrain.platforms.base import Request
from cloudtrain.platforms.checks import MISSING_MODULES, Check, Finding, failed, ok, unknown, warning
from cloudtrain.platforms.common.machine_checks import check_bucket, check_disk, check_input, immediately
from cloudtrain.platforms.local import namespace
from cloudtrain.spec import TrainingJob
from cloudtrain.storage import state_home, uri_scheme

OLDEST_PYTHON = (3, 9)
NEEDS_PYTHON = "Set platform_options.python to the path of a Python 3.9 or newer."
INSTALLS = {"requirements.txt", "setup.py", "pyproject.toml"}
"""Files of a source that make the job install packages before its ranks start."""
PATIENCE = 20.0
"""Seconds that an endpoint may take to accept a connection."""
SLOW_SECONDS = 10.0
START_SECONDS = 180.0
"""How long an interpreter may take to start. A minute is not unusual on a cold NFS or a loaded machine."""
START_IS_SLOW = "Every rank waits for that. A slow file system or a loaded machine is the usual cause."

_VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""
"""A program that prints the versions of the given distributions that its Python has."""

_LOOK = """
import json, sys
version = list(sys.version_info[:3])
names = json.loads(sys.argv[1])
missing, torch = names, None
def found(name):
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return name in sys.modules
if version >= [3, 8]:
    import importlib.metadata, importlib.util
    missing = [name for name in names if not found(name)]
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps([version, missing, torch]))
"""
"""A program that prints the version of its Python, which of the given modules are missing, and torch's version.

Python 2 can run it too.
"""


def checks(job: TrainingJob, request: Request | None, imports: Sequence[str]) -> Mapping[str, Check]:
    """All checks by name. Those of Python and storage depend on the job, if there is one."""
    python = request.body["python"] if request else sys.executable
    found: dict[str, Check] = {
        "python": partial(check_python, python),
        "disk": check_disk,
        "/opt/ml": partial(check_opt_ml, job, request),
    }
    if request is None or "torch" in imports:
        found["torch"] = partial(check_torch, python, is_certain=_needs_torch(job))
    others = [name for name in imports if name != "torch"]
    if others:
        found["imports"] = partial(check_imports, python, others)
    if text := _requirements_file(job):
        found["requirements"] = partial(check_requirements, python, text)
    if job.distribution and "mpi" in job.distribution.enabled:
        found["mpirun"] = partial(check_mpirun, python)
    found.update(_storage(request) if request else _endpoint())
    return found


def _requirements_file(job: TrainingJob) -> str:
    """The requirements.txt that the job installs; empty if there is none."""
    if job.source is None:
        return ""
    try:
        files = read_sources(cached_archive(job.source.sha256))
    except StorageError:  # another check reports it
        return ""
    return files.get("requirements.txt", b"").decode("utf-8", "replace")


def _needs_torch(job: TrainingJob) -> bool:
    """Whether the job needs torch in its interpreter to start: torchrun needs it, and the source installs nothing."""
    if job.distribution is None or "torch_distributed" not in job.distribution.enabled:
        return False
    if job.source is None:
        return True
    try:
        with tarfile.open(cached_archive(job.source.sha256)) as tar:
            return not INSTALLS.intersection(tar.getnames())
    except (OSError, tarfile.TarError):
        return False


def _storage(request: Request) -> Iterator[tuple[str, Check]]:
    settings = request_settings(request.body)
    for name, uri in settings.channels:
        yield f"input {name}", partial(immediately, partial(check_input, name, uri))
    for uri in (settings.output_uri, settings.checkpoint_uri):
        if uri_scheme(uri) != "file":
            yield f"bucket {urlsplit(uri).netloc}", partial(immediately, partial(check_bucket, uri))


def _endpoint() -> Iterator[tuple[str, Check]]:
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        yield "S3 endpoint", partial(check_endpoint, endpoint)


def check_python(python: str) -> Finding:
    began = time.monotonic()
    answer = _ask(python, [])
    if isinstance(answer, Finding):
        return answer
    seconds = time.monotonic() - began
    if seconds > SLOW_SECONDS:
        what = f"{_shown(python, answer[0])}, which took {seconds:.0f} s to start"
        return warning(what, START_IS_SLOW)
    return ok(_shown(python, answer[0]))


def check_torch(python: str, *, is_certain: bool = False) -> Finding:
    """``is_certain``: the job fails without torch."""
    answer = _ask(python, [])
    if isinstance(answer, Finding):
        return unknown(answer.what)
    if version := answer[2]:
        return ok(f"torch {version}")
    if is_certain:
        return failed(
            f"torch_distributed needs torch, which {python} does not have",
            f"Add torch to requirements.txt, or install it: {python} -m pip install torch",
        )
    return warning(
        f"neither requirements.txt nor {python} has torch",
        f"If scripts need it: {python} -m pip install torch",
    )


def check_imports(python: str, imports: Sequence[str]) -> Finding:
    answer = _ask(python, imports)
    if isinstance(answer, Finding):
        return unknown(answer.what)
    if missing := answer[1]:
        from cloudtrain.runtime.diagnose.hints.script import FRAMEWORKS  # slow: all hints

        is_known = set(missing) <= {*FRAMEWORKS}
        install = (
            f"Add them to requirements.txt, or install them: {python} -m pip install {' '.join(missing)}"
        )
        what = f"neither requirements.txt nor {python} has {', '.join(missing)}"
        return warning(what, install if is_known else MISSING_MODULES)
    return ok(f"{python} has {', '.join(imports)}")


def check_requirements(python: str, text: str) -> Finding:
    """Report which lines of a requirements.txt the job has to install. Files that it includes are not read."""
    wanted = [*_requirements(text)]
    command = [python, "-c", _VERSIONS, *(requirement.name for requirement in wanted)]
    try:
        done = subprocess.run(command, cwd=Path(python).anchor, capture_output=True, timeout=START_SECONDS)
        has: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return unknown(f"{python} does not report its packages")
    missing = [
        str(requirement)
        for requirement in wanted
        if requirement.name not in has
        or not requirement.specifier.contains(has[requirement.name], prereleases=True)
    ]
    if not missing:
        return ok(f"{python} has what requirements.txt names")
    return ok(f"the job installs {', '.join(missing)}, which {python} lacks")


def _requirements(text: str) -> Iterator[Requirement]:
    """The packages that a requirements.txt names for this machine; options, URLs and paths are skipped."""
    for line in text.splitlines():
        with contextlib.suppress(InvalidRequirement):
            requirement = Requirement(line.partition(" #")[0])
            if not requirement.url and (requirement.marker is None or requirement.marker.evaluate()):
                yield requirement


def check_mpirun(python: str) -> Finding:
    """If the job uses another interpreter, an mpirun next to it takes precedence over the PATH, as in the job."""
    folders = [os.path.dirname(python)] if python != sys.executable else []
    path = shutil.which("mpirun", path=os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)]))
    if path:
        return ok(path)
    return failed("there is no mpirun on the PATH", "Install Open MPI 4 or 5: apt-get install openmpi-bin")


def check_endpoint(endpoint: str) -> Finding:
    parts = urlsplit(endpoint)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.create_connection((parts.hostname or "", port), timeout=PATIENCE).close()
    except OSError as error:
        return failed(
            f"{endpoint} does not answer: {error}", "Start it, or unset the variable AWS_ENDPOINT_URL."
        )
    return ok(f"{endpoint} answers")


def _ask(python: str, names: Sequence[str]) -> tuple[list[int], list[str], str | None] | Finding:
    """The output of `_LOOK` for an interpreter; a failed finding if it does not run, or is too old."""
    command = [python, "-c", _LOOK, json.dumps(list(names))]
    try:
        # in a folder without modules, because those in the user's folder are not part of the job
        done = subprocess.run(command, cwd=Path(python).anchor, capture_output=True, timeout=START_SECONDS)
    except OSError as error:
        return _unusable(f"{python} does not run: {error.strerror}")
    except subprocess.TimeoutExpired:
        what = f"{python} is slow: it has not started within {START_SECONDS:.0f} s"
        return unknown(what, START_IS_SLOW)
    if done.returncode:
        lines = done.stderr.decode(errors="backslashreplace").strip().splitlines()
        last = lines[-1] if lines else f"exit code {done.returncode}"
        return _unusable(f"{python} does not run Python code: {last}")
    try:
        version, missing, torch = json.loads(done.stdout.strip().splitlines()[-1])
        version = [int(part) for part in version]
    except (ValueError, TypeError, IndexError):
        return _unusable(f"{python} is not a Python interpreter")
    if tuple(version[:2]) < OLDEST_PYTHON:
        return _unusable(_shown(python, version))
    return version, missing, torch


def _unusable(what: str) -> Finding:
    return failed(what, NEEDS_PYTHON)


def _shown(python: str, version: Sequence[int]) -> str:
    return f"{python} is Python {'.'.join(map(str, version))}"


def check_opt_ml(job: TrainingJob, request: Request | None) -> Finding:
    """Warns if the source uses ``/opt/ml``, and the job's hosts do not have it."""
    home = state_home()
    reason = namespace.no_opt_ml(request.body, home) if request else namespace.obstacle([home])
    reason = reason or namespace.try_here(Path(__file__).parent)
    if not reason:
        return ok(f"{DEFAULT_BASE} is the job's own folder")
    uses = find_uses(_texts(job)) if job.source else []
    if not uses:
        return ok(f"not used; jobs do not have it here: {reason}")
    return warning(
        f"{show_uses(uses)}, but jobs do not have {DEFAULT_BASE} here: {reason}", advice(uses[0].path)
    )


def _texts(job: TrainingJob) -> Iterator[tuple[str, bytes]]:
    """The files of the job's packed source that can be searched. Another check reports a source that cannot be read."""
    if job.source is None:
        return
    try:
        with tarfile.open(cached_archive(job.source.sha256)) as tar:
            for member in tar:
                if (
                    member.name.endswith(SUFFIXES)
                    and member.size <= LARGEST
                    and (file := tar.extractfile(member))
                ):
                    yield member.name, file.read()
    except (OSError, tarfile.TarError):
        return
