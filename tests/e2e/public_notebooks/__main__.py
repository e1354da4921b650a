"""Run the code cells of public notebooks of the SageMaker SDK, with their import lines changed.

python tests/e2e/public_notebooks fetch        prints the git commands that check the repositories out
python tests/e2e/public_notebooks run --checkouts DIR [--python NAME=PATH]... [NOTEBOOK]...
python tests/e2e/public_notebooks names --checkouts DIR [--each]    counts the names of the SDK in all that train
python tests/e2e/public_notebooks table        prints the rows of docs/reference/public-scripts.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from notebook_list import Notebook, read_notebooks
from notebook_names import report
from notebook_run import Workplace
from notebook_table import table


def main() -> int:
    arguments = _parse()
    notebooks = read_notebooks()
    if arguments.command == "fetch":
        for repository in dict.fromkeys(notebook.repository for notebook in notebooks):
            print(f"# {repository.licence}", *repository.fetch(), sep="\n")
        return 0
    if arguments.command == "table":
        print(table(notebooks))
        return 0
    if arguments.command == "names":
        for folder in dict.fromkeys(notebook.repository.folder for notebook in notebooks):
            print(f"# {folder}", *report(arguments.checkouts / folder, each=arguments.each), sep="\n")
        return 0
    known = {notebook.name: notebook for notebook in notebooks}
    if unknown := sorted(set(arguments.notebooks) - set(known)):
        print(f"no notebook of the list is named {', '.join(unknown)}", file=sys.stderr)
        return 2
    pythons = dict(arguments.python)
    bad = 0
    for name in arguments.notebooks or known:
        if arguments.sdk:
            bad += not _compare(known[name], arguments.checkouts.resolve(), pythons, arguments.sdk)
        else:
            bad += not _report(known[name], arguments.checkouts.resolve(), pythons)
    return 1 if bad else 0


def _compare(notebook: Notebook, checkouts: Path, pythons: dict[str, str], sdk: str) -> bool:
    """Print how the requests of a notebook differ from those of the SDK. Returns whether none does."""
    paths = _paths(notebook, checkouts)
    if not paths[0].exists():
        print(f"left out   {notebook.name}: there is no {paths[0]}")
        return True
    with Workplace(pythons.get("notebook", sys.executable), sdk) as workplace:
        theirs = workplace.run(notebook, *paths, by_sdk=True)
        ours = workplace.run(notebook, *paths)
    found = ours.unlike(theirs)
    print(f"{'differs' if found else 'as the SDK':10} {notebook.name}: {ours.jobs} jobs", flush=True)
    for line in found:
        print(f"    {line}")
    return not found


def _paths(notebook: Notebook, checkouts: Path) -> tuple[Path, Path]:
    """The notebook, and the folder with its script."""
    path = checkouts / notebook.repository.folder / notebook.path
    return path, checkouts / notebook.repository.folder / notebook.folder if notebook.folder else path.parent


def _report(notebook: Notebook, checkouts: Path, pythons: dict[str, str]) -> bool:
    """Print one line for each platform. Returns whether all is as listed."""
    path, files = _paths(notebook, checkouts)
    if not path.exists():
        print(f"left out   {notebook.name}: there is no {path}")
        return True
    is_good = True
    for platform in ("sagemaker", "local") if notebook.local else ("sagemaker",):
        is_local = platform == "local"
        if is_local and notebook.python != "torch" and notebook.python not in pythons:
            print(f"left out   {notebook.name} on local: needs --python {notebook.python}=PATH")
            continue
        with Workplace(pythons.get("notebook", sys.executable)) as workplace:
            job_python = pythons.get(notebook.python, pythons.get("notebook", sys.executable))
            outcome = workplace.run(
                notebook,
                path,
                files,
                local=is_local,
                job_python=job_python if is_local else "",
            )
        found = outcome.differences(notebook, local=is_local)
        passed = sum(error is None for error in outcome.errors.values())
        verdict = "differs" if found else "as listed"
        print(f"{verdict:10} {notebook.name} on {platform}: {passed} of {notebook.cells} cells", flush=True)
        for line in found:
            print(f"    {line}")
        if found and not outcome.errors:
            print(outcome.log)
        is_good = is_good and not found
    return is_good


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="public_notebooks", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="print the git commands that check the repositories out")
    commands.add_parser("table", help="print the table of the documentation")
    run = commands.add_parser("run", help="run the notebooks and compare their cells with the list")
    names = commands.add_parser("names", help="count the names of the SDK that cloudtrain has and lacks")
    names.add_argument("--each", action="store_true", help="also print the missing names of each notebook")
    for command in (run, names):
        command.add_argument("--checkouts", type=Path, required=True, help="the folder of the checkouts")
    run.add_argument(
        "--python",
        action="append",
        default=[],
        type=lambda text: tuple(text.split("=", 1)),
        metavar="NAME=PATH",
        help="the interpreter of the cells (notebook), or of jobs on local (torch, tensorflow, mxnet)",
    )
    run.add_argument("--sdk", metavar="PATH", help="compare with the requests of the SDK in this interpreter")
    run.add_argument("notebooks", nargs="*", metavar="NOTEBOOK", help="names in the list (default: all)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
