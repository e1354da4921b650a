"""What ``pip install -r requirements.txt`` would do in an image whose distributions are known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


@dataclass(frozen=True)
class Plan:
    """Lines of a requirements file, by what becomes of them."""

    missing: list[str] = field(default_factory=list)
    """To be installed."""
    replaced: list[tuple[str, str]] = field(default_factory=list)
    """To be installed in place of the version that the image has."""
    unknown: list[str] = field(default_factory=list)
    """URLs, paths, options: pip knows."""
    wrong: list[str] = field(default_factory=list)
    """pip refuses them."""

    @property
    def installs(self) -> bool:
        """Whether pip has anything to do, as far as that is known."""
        return bool(self.missing or self.replaced or self.unknown)


def plan(lines: Iterable[str], installed: Mapping[str, str], markers: Mapping[str, str]) -> Plan:
    """Compare the lines of a requirements file with ``installed``: versions by name.

    Args:
        markers: the environment of the image's Python, for lines that are not for all (PEP 508).

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
