"""The documentation is correct: its commands and snippets run, its lists are complete, its links resolve."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec
import pytest
from documents import REPOSITORY, Reader, read_blocks, runs_something
from markdown_it import MarkdownIt
from pages import PASSED, lock_line, parametrize_pages

from cloudtrain.cli import cli
from cloudtrain.contract import FailureClass, Host, Paths, RankSlot, script_environment
from cloudtrain.contract.frameworks import (
    FRAMEWORK_VARIABLES,
    HOSTFILE,
    TF_CONFIG,
    WorldPorts,
    framework_variables,
)
from cloudtrain.contract.trackers import RUN_ID, tracker_variables
from cloudtrain.spec import TrainingJob

DOCS = REPOSITORY / "docs"
RUNNING = sorted(
    path.relative_to(REPOSITORY).as_posix() for path in DOCS.rglob("*.md") if runs_something(path)
)
PAGES = [
    page
    for page in RUNNING
    if page.removeprefix("docs/guides/") not in ("kubernetes.md", "slurm.md", "pbs.md")
]  # test_kubernetes_page.py and test_slurm_page.py run their commands
ALL_PAGES = [
    path.relative_to(REPOSITORY).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/**/*.md", "containers/*.md", "benchmarks/*.md")
    for path in sorted(REPOSITORY.glob(pattern))
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "running_page", PAGES)


@pytest.mark.timeout(1200)
def test_every_command_and_snippet_runs(
    running_page: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    reader = Reader(tmp_path)
    try:
        assert reader.follow(REPOSITORY / running_page) > 0
    finally:
        reader.end()
    record_property(PASSED, lock_line(running_page))


def test_every_guide_shows_something_that_runs() -> None:
    guides = {path.relative_to(REPOSITORY).as_posix() for path in (DOCS / "guides").rglob("*.md")}
    assert guides - set(RUNNING) == set()


def test_every_guide_begins_with_what_works_at_its_end() -> None:
    begins = re.compile(r"# .+\n\nAt the end of this page, ")
    guides = (DOCS / "guides").glob("*.md")
    assert [page.name for page in guides if not begins.match(page.read_text(encoding="utf-8"))] == []


INSTALLED = {"boto3", "cloudtrain", "horovod", "numpy", "torch"}
"""The packages that the README installs, and those of every job."""


@pytest.mark.parametrize(
    "page", [page for page in RUNNING if page.startswith("docs/guides/") and not page.endswith("doctor.md")]
)
def test_a_guide_names_the_packages_that_it_needs(page: str) -> None:
    imported: set[str] = set()
    for block in read_blocks(REPOSITORY / page):
        if block.language == "python":
            imported |= {name.partition(".")[0] for name in _imports(block.text)}
    text = (REPOSITORY / page).read_text(encoding="utf-8")
    named = (
        " ".join(re.findall(r"pip install [^`\n]*", text))
        .replace("scikit-learn", "sklearn")
        .replace("keras", "")
    )
    missing = {
        name
        for name in imported - {*sys.stdlib_module_names} - INSTALLED
        if name not in named and name != "keras" and f"{name}.py" not in text  # TensorFlow brings Keras
    }
    assert missing == set()


def _imports(code: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def test_no_two_guides_submit_a_job_of_the_same_name() -> None:
    """A reader follows one guide after the other, on one machine."""
    pages: dict[tuple[str, str | None], set[str]] = {}
    for page in RUNNING:
        for block in read_blocks(REPOSITORY / page):
            if block.language == "console":
                for command in re.findall(r"^\$ (cloudtrain submit .*--name .*)", block.text, re.MULTILINE):
                    name, platform = (
                        re.search(rf"--{word} ([\w-]+)", command) for word in ("name", "platform")
                    )
                    if name and "--dry-run" not in command:
                        pages.setdefault((name[1], platform and platform[1]), set()).add(page)
    assert {name: found for name, found in pages.items() if len(found) > 1} == {}


def test_the_index_lists_every_page() -> None:
    listed = {link.partition("#")[0] for link in _links((DOCS / "README.md").read_text(encoding="utf-8"))}
    pages = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - {"README.md"}
    assert pages - listed == set()


def test_the_table_of_fields_is_that_of_the_code() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| [^|]+ \|([^|]*)\|", _section("reference/job-file.md", "All fields"), re.MULTILINE
    )
    shown = {name: default.strip() for name, default in rows}
    assert shown == {field.name: _default(field) for field in msgspec.structs.fields(TrainingJob)}


def _default(field: msgspec.structs.FieldInfo) -> str:
    """A default as the table shows it: nothing for what is empty."""
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return "" if value in (None, [], {}) else f"`{json.dumps(value)}`"


def test_every_class_of_failure_is_explained() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \|", (DOCS / "reference/failure-report.md").read_text(), re.MULTILINE)
    assert set(rows) >= {str(kind) for kind in FailureClass}


def test_every_variable_of_the_contract_is_explained() -> None:
    text = (DOCS / "reference/container-contract.md").read_text()
    host = Host("algo-1", ("algo-1",))
    paths, master = Paths(Path("/opt/ml")), ("algo-1", 7777)
    promised = script_environment(
        paths, host, {}, {}, arguments=[], job_name="job", entry_point="train.py", master=master
    )
    slot = RankSlot(0, 0, 2, 2, 0, 1)
    promised |= slot.environment("algo-1", 7777) | {HOSTFILE: ""}
    promised |= tracker_variables("job", "job", "", 0) | {RUN_ID: ""}
    promised |= framework_variables(slot, "127.0.0.1", WorldPorts(), gpus=2)
    promised[TF_CONFIG] = ""
    assert set(FRAMEWORK_VARIABLES) <= set(promised)
    assert [name for name in promised if f"`{name}`" not in text] == []


def test_every_command_and_option_is_explained() -> None:
    text = (DOCS / "reference/command-line.md").read_text()
    missing = [name for name in _words(cli, click.Context(cli)) if not re.search(rf"`[^`]*{name}\b", text)]
    assert missing == []


def _words(command: click.Command, context: click.Context) -> set[str]:
    """All names of subcommands and long options below ``command``."""
    words = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
        if option.startswith("--") and option != "--version"
    }
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            words |= {name, *_words(child, context)}
    return words


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = (REPOSITORY / page).parent
    broken = []
    for link in _links((REPOSITORY / page).read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        target = folder / path if path else REPOSITORY / page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert broken == []


def _links(text: str) -> list[str]:
    """The links of a page to other files and to its own sections."""
    children = (child for token in MarkdownIt().parse(text) for child in token.children or [])
    links = (str(child.attrs["href"]) for child in children if child.type == "link_open")
    return [link for link in links if "://" not in link]


def _anchors(page: Path) -> set[str]:
    """The names that GitHub gives to headings."""
    tokens = MarkdownIt().parse(page.read_text(encoding="utf-8"))
    titles = (
        tokens[number + 1].content for number, token in enumerate(tokens) if token.type == "heading_open"
    )
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def _section(page: str, title: str) -> str:
    """The text below the heading ``title``, up to its first subsection."""
    return (DOCS / page).read_text(encoding="utf-8").split(f"## {title}\n", 1)[1].split("\n### ", 1)[0]
