"""``cloudtrain examples``."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click

from cloudtrain.cli._new_files import write_new_files
from cloudtrain.cli._options import json_option
from cloudtrain.cli._output import echo_json, print_table

PACKAGE = Path(__file__).parents[1]
PLACES = (PACKAGE / "examples", PACKAGE.parent / "examples")
"""The folder of the examples in a wheel, and in a clone."""
_LINK = re.compile(rb"\[([^]]*)\]\(\.\./\.\./([^)#]*)[^)]*\)")
"""A link to a page of the repository, which a copy elsewhere does not have."""


def complete_example(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [folder.name for folder in _folders() if folder.name.startswith(incomplete)]


@click.command("examples")
@click.argument("name", required=False, shell_complete=complete_example)
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
@json_option
def command(name: str | None, folder: Path | None, as_json: bool) -> None:
    """List the examples, or copy the example NAME into FOLDER, by default a new one of its name.

    The installed package has them: nothing is downloaded.

    \b
    Examples:
      cloudtrain examples
      cloudtrain examples digits_pytorch
      cloudtrain examples jax first-jax
    """
    if name is None:
        found = [_describe(one) for one in _folders()]
        if as_json:
            echo_json(found)
            return
        print_table(("EXAMPLE", "TAKES", "WHAT IT SHOWS"), [(*one.values(),)[:3] for one in found])
        click.echo("\nCopy one: cloudtrain examples NAME", err=True)
        return
    source = _find(name)
    target = folder or Path(name)
    files = _copy(source, target)
    if as_json:
        echo_json({"example": name, "folder": str(target), "files": [str(path) for path in files]})
        return
    for path in files:
        click.echo(path)
    needs = _describe(source)["needs"]
    click.echo(f"\nIt needs: {needs}\nHow to run it: {shlex.quote(str(target / 'README.md'))}", err=True)


def _folders() -> list[Path]:
    """The folders of the examples, in alphabetical order."""
    for place in PLACES:
        if place.is_dir():
            return sorted(readme.parent for readme in place.glob("*/README.md"))
    raise click.ClickException(
        "This installation of cloudtrain has no examples: install it from its wheel or a clone."
    )


def _find(name: str) -> Path:
    from cloudtrain.errors import nearest

    folders = {folder.name: folder for folder in _folders()}
    if name not in folders:
        raise click.UsageError(f"No such example: {name!r}. {nearest(name, folders)}")
    return folders[name]


def _describe(folder: Path) -> dict[str, str]:
    """The name of an example, and the title and the lines "Needs" and "Takes" of its README."""
    text = (folder / "README.md").read_text(encoding="utf-8")
    title, takes, needs = (
        match[1] if (match := re.search(pattern, text, re.MULTILINE)) else ""
        for pattern in ("^# (.*)", r"^- \*\*Takes:\*\* (.*)\.$", r"^- \*\*Needs:\*\* (.*)\.$")
    )
    return {"name": folder.name, "takes": takes, "shows": title, "needs": needs.replace("`", "")}


def _copy(source: Path, target: Path) -> list[Path]:
    """Copy the files of an example, and return their paths. Raises click's errors, and then leaves no new files."""
    files = {target / path.name: path.read_bytes() for path in sorted(source.iterdir()) if path.is_file()}
    readme = target / "README.md"
    return write_new_files(
        {**files, readme: _LINK.sub(rb"*\1* (\2 in cloudtrain's repository)", files[readme])}
    )
