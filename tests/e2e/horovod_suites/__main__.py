"""Run Horovod's own suites under cloudtrain's launchers, and compare their outcomes with the list.

python tests/e2e/horovod_suites fetch       prints the git commands that check Horovod out
python tests/e2e/horovod_suites run --checkout DIR [--python NAME=PATH]... [PART]...
python tests/e2e/horovod_suites table       prints the rows of docs/reference/horovod.md
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from suite_list import LIST, read_list, table
from suite_run import report, run


def main() -> int:
    arguments = _parse()
    suites = read_list(arguments.list)
    if arguments.command == "fetch":
        print("git init --quiet horovod")
        print(f"git -C horovod fetch --quiet --depth 1 {suites.url} {suites.commit}")
        print("git -C horovod checkout --quiet FETCH_HEAD")
        return 0
    if arguments.command == "table":
        print(table(suites.parts))
        return 0
    known = {part.name: part for part in suites.parts}
    if unknown := sorted(set(arguments.parts) - set(known)):
        print(f"no part of the list is named {', '.join(unknown)}", file=sys.stderr)
        return 2
    chosen = [known[name] for name in arguments.parts or known]
    pythons = {"torch": sys.executable, **dict(arguments.python)}
    with ExitStack() as stack:
        if arguments.work:
            arguments.work.mkdir(parents=True, exist_ok=True)
            work = Path(tempfile.mkdtemp(prefix="run-", dir=arguments.work)).resolve()
        else:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        results = [report(run(part, arguments.checkout.resolve(), pythons, work)) for part in chosen]
    verdicts = [result.verdict for result in results]
    print(*(f"{verdicts.count(word)} {word}" for word in ("as listed", "differs", "left out")), sep=", ")
    return 1 if "differs" in verdicts else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="horovod_suites", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", type=Path, default=LIST, help="another list")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("fetch", help="print the git commands that check Horovod out")
    commands.add_parser("table", help="print the tables of the documentation")
    run = commands.add_parser("run", help="run the parts and compare their outcomes with the list")
    run.add_argument("--checkout", type=Path, required=True, help="the folder of Horovod's checkout")
    run.add_argument(
        "--work", type=Path, help="keep results and logs in this folder (default: a temporary one)"
    )
    run.add_argument(
        "--python",
        action="append",
        default=[],
        type=_python,
        metavar="NAME=PATH",
        help="the interpreter for tensorflow or mxnet (default: torch is this one, the others are left out)",
    )
    run.add_argument("parts", nargs="*", metavar="PART", help="names in the list (default: all)")
    return parser.parse_args()


def _python(text: str) -> tuple[str, str]:
    name, _, path = text.partition("=")
    if name not in ("torch", "tensorflow", "mxnet") or not path:
        raise argparse.ArgumentTypeError(f"{text!r}: give NAME=PATH with torch, tensorflow or mxnet")
    return name, path


if __name__ == "__main__":
    sys.exit(main())
