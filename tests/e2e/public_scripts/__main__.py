"""Run public scripts on `local`, unchanged, with data in the embedded S3 server.

python tests/e2e/public_scripts fetch        prints the git commands that check the repositories out
python tests/e2e/public_scripts run --checkouts DIR [--python NAME=PATH]... [SCRIPT]...
python tests/e2e/public_scripts table        prints the rows of docs/reference/public-scripts.md
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from script_list import Repository, read_pythons, read_scripts
from script_run import Workplace, report
from script_table import table


def main() -> int:
    arguments = _parse()
    if arguments.command == "fetch":
        for repository in dict.fromkeys(script.repository for script in read_scripts()):
            print(*_fetch(repository), sep="\n")
        return 0
    if arguments.command == "table":
        print(table(read_scripts()))
        return 0
    known = {script.name: script for script in read_scripts()}
    if unknown := sorted(set(arguments.scripts) - set(known)):
        print(f"no script of the list is named {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in arguments.scripts or known]
    with Workplace(arguments.checkouts.resolve(), dict(arguments.python), arguments.work) as workplace:
        results = [report(workplace.run(script)) for script in chosen]
    counts = {
        word: sum(result.verdict == word for result in results)
        for word in ("as listed", "differs", "left out")
    }
    print(*(f"{count} {word}" for word, count in counts.items()), sep=", ")
    return 1 if counts["differs"] else 0


def _fetch(repository: Repository) -> list[str]:
    return [f"# {repository.licence}", *repository.fetch()]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="public_scripts", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="print the git commands that check the repositories out")
    commands.add_parser("table", help="print the table of the documentation")
    run = commands.add_parser("run", help="run the scripts and compare their outcomes with the list")
    run.add_argument("--checkouts", type=Path, required=True, help="the folder of the checkouts")
    run.add_argument("--work", type=Path, help="keep jobs and logs in this folder (default: a temporary one)")
    run.add_argument(
        "--python",
        action="append",
        default=[],
        type=_python,
        metavar="NAME=PATH",
        help="the interpreter of a name in pythons.yaml (default: torch is this one, the others are left out)",
    )
    run.add_argument("scripts", nargs="*", metavar="SCRIPT", help="names in the list (default: all)")
    return parser.parse_args()


def _python(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if name not in read_pythons() or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=PATH with a name of pythons.yaml")
    return name, path


if __name__ == "__main__":
    sys.exit(main())
