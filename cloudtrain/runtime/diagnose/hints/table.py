"""The structure of a hint, the facts about a job that fill it in, and the search for the hint that applies."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Mapping
from pathlib import Path

from cloudtrain._dataclass import dataclass
from cloudtrain.contract import FailureClass
from cloudtrain.runtime.sampling.xids import facts_of

SEARCHED_FOLDERS = 2000
"""The most folders of the source that are searched for a module."""

_OF_JOB = ("input", "output", "model", "checkpoints")
"""The job's folders next to its source."""


@dataclass(frozen=True)
class Hint:
    """The advice for failures that ``pattern`` matches.

    ``text`` may contain, in braces, named groups of the pattern and facts of `JobFacts`. A hint applies only if all of
    them have values.
    """

    example: str
    """A failure to which the hint applies, as the library reports it."""
    pattern: str
    """The expression to search in ``Type: message`` of the exception or, with ``exit_code``, in the last lines."""
    text: str
    traceback: str = ""
    """An expression that the traceback must match too; empty for any traceback."""
    exit_code: int | None = None
    """The exit code of a script that ends itself after printing an error, instead of raising an exception."""
    failure_class: FailureClass | None = None
    """A class that is more precise than that of the exception's type."""

    @property
    def placeholders(self) -> set[str]:
        return {name for _, name, _, _ in string.Formatter().parse(self.text) if name}


@dataclass(frozen=True)
class Failure:
    """The failure of a script, as text for the patterns of hints."""

    exit_code: int
    exception: str = ""
    """``Type: message``; empty if the script ended itself."""
    traceback: str = ""
    last_lines: str = ""


@dataclass(frozen=True)
class JobFacts:
    """The known facts about the job. A hint that needs an unknown fact does not apply."""

    code: Path | None = None
    """The folder with the unpacked source."""
    channels: Collection[str] | None = None

    def about(self, groups: Mapping[str, str]) -> dict[str, str]:
        """The known facts, and ``groups``, the matched groups of the pattern."""
        facts = dict(groups)
        if self.channels is not None:
            facts["channels"] = ", ".join(sorted(self.channels)) or "none"
        if "channel_variable" in groups:
            variable = groups["channel_variable"]
            if variable not in {f"SM_CHANNEL_{name.upper()}" for name in self.channels or ()}:
                facts["absent_channel"] = variable
        if "xid" in groups:
            facts.update(facts_of(int(groups["xid"])))
        if "module" in groups:
            facts["top"] = groups["module"].partition(".")[0]
            if self.code:
                facts.update(_in_source(self.code, groups["module"]))
        if "path" in groups and self.code and groups["path"].startswith(f"{self.code}/"):
            facts["below_source"] = groups["path"][len(f"{self.code}/") :]
        elif "path" in groups and self.code and groups["path"].startswith(f"{self.code.parent}/"):
            relative = groups["path"][len(f"{self.code.parent}/") :]
            if relative.partition("/")[0] not in _OF_JOB:
                facts["next_to_source"] = relative
        return facts


UNKNOWN = JobFacts()


def _in_source(code: Path, module: str) -> dict[str, str]:
    """Facts about a module that Python cannot find: the place of the module, or of a part of it, in the source.

    ``found_in``: the folder of a top-level module. ``own_file``: the file of a submodule. ``own_package``: the package
    that lacks the submodule. ``foreign``: the package, if it is not in the source.
    """
    top, *parts = module.split(".")
    folders = [folder for folder in _folders(code) if _has_module(folder, top)]
    if not folders:
        return {"foreign": top}
    if not parts:
        return {"found_in": str(folders[0].relative_to(code))}
    for folder in folders:
        path = folder.joinpath(top, *parts)
        if _has_module(path.parent, path.name):
            file = path.with_suffix(".py")
            return {"own_file": str((file if file.is_file() else path).relative_to(code))}
    return {"own_package": str((folders[0] / top).relative_to(code))}


def _folders(code: Path) -> list[Path]:
    """The folders of the source, breadth first, except hidden ones."""
    found = [code]
    for folder in found:
        if len(found) > SEARCHED_FOLDERS:
            break
        try:
            found += sorted(
                path
                for path in folder.iterdir()
                if path.is_dir() and not path.is_symlink() and not path.name.startswith((".", "__"))
            )
        except OSError:
            continue
    return found


def _has_module(folder: Path, name: str) -> bool:
    """Whether an import of ``name`` with ``folder`` on the path finds Python code."""
    return (folder / f"{name}.py").is_file() or any((folder / name).glob("*.py"))


def first_that_applies(hints: Collection[Hint], failure: Failure, facts: JobFacts) -> tuple[Hint, str] | None:
    """The first hint that applies, and its text, filled in."""
    for hint in hints:
        match = _match(hint, failure)
        if match is None:
            continue
        known = facts.about({key: value for key, value in match.groupdict().items() if value is not None})
        if hint.placeholders <= known.keys():
            return hint, hint.text.format_map(known)
    return None


def _match(hint: Hint, failure: Failure) -> re.Match[str] | None:
    if hint.exit_code is not None:
        ends_itself = not failure.exception and failure.exit_code == hint.exit_code
        return re.search(hint.pattern, failure.last_lines, re.MULTILINE) if ends_itself else None
    if not failure.exception or not re.search(hint.traceback, failure.traceback):
        return None
    return re.search(hint.pattern, failure.exception)
