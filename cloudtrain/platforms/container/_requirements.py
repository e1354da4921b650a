"""Predicts the effect of ``pip install -r requirements.txt`` in an image, from its installed distributions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name


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
