"""The house rules that the linters' own configuration does not express."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp

from cloudtrain.packaging.zipapp import BUNDLED

REPOSITORY = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LONGEST = 600
MEDIAN = 200

PYPROJECT = REPOSITORY / "pyproject.toml"

BROUGHT_BY = {
    "mlflow": "mlflow_skinny",
    "httpcore2": "httpx2",
    "botocore": "boto3",
    "google": "google_cloud_storage",
    "mypy_boto3_s3": "boto3_stubs",
    "nbformat": "nbconvert",
    "requests": "docker",
    "s3transfer": "boto3",
    "traitlets": "ipython",
    "urllib3": "google_cloud_storage",
    "typing_extensions": "mypy",  # for type checkers only
    "_typeshed": "mypy",
}
"""Imported packages that a declared distribution always installs: it returns or accepts their objects."""

THE_JOB_HAS = {
    **dict.fromkeys(("boto3", "botocore", "google", "requests", "s3transfer", "urllib3"), ("storage",)),
    **dict.fromkeys(("keras", "mpi4py", "mxnet", "numpy"), ("checkpoint", "distributed", "optimizers")),
    "tensorflow": ("checkpoint", "distributed", "optimizers", "runtime"),
    "torch": ("checkpoint", "distributed", "observe", "optimizers", "runtime"),
    "horovod": ("runtime",),
}
"""The packages that a script or an image brings, and the bundled folders that import them where they exist."""


def test_files_are_small() -> None:
    lengths = {
        path: path.read_bytes().count(b"\n")
        for folder in ("cloudtrain", "tests", "benchmarks", "examples")
        for path in (REPOSITORY / folder).rglob("*.py")
    }
    assert [path for path, length in lengths.items() if length > LONGEST] == []
    assert statistics.median(lengths.values()) < MEDIAN


def test_the_changelog_is_read_in_two_minutes() -> None:
    for version in re.split("^## ", (REPOSITORY / "CHANGELOG.md").read_text(), flags=re.MULTILINE):
        assert len(version.split()) <= 500, version.splitlines()[0]


def test_names_of_test_files_are_unique() -> None:
    """pytest imports them as modules without a package."""
    names = [path.name for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    graph = grimp.build_graph("cloudtrain", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle


def test_one_package_has_the_differences_between_operating_systems() -> None:
    look = re.compile(r"sys\.platform|os\.name\b|platform\.system\(")
    alone = (
        "runtime/zipapp_main.py",
        "platforms/container/_probe.py",
    )  # they run without the rest of cloudtrain
    own = ("_system/", "runtime/parent_death.py", "runtime/descendants.py", *alone)
    found = [
        f"{path.relative_to(REPOSITORY)}:{number}"
        for path in (REPOSITORY / "cloudtrain").rglob("*.py")
        if not path.relative_to(REPOSITORY / "cloudtrain").as_posix().startswith(own)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if look.search(line) and not line.startswith('assert sys.platform != "win32"')
    ]
    assert found == [], "put the difference behind a name in cloudtrain._system"


def test_no_file_has_the_markers_of_a_merge_conflict() -> None:
    marker = re.compile(rb"^(<{7}|>{7}) ", re.MULTILINE)
    folders = ("benchmarks", "cloudtrain", "docs", "examples", "scripts", "tests")
    paths = [
        *REPOSITORY.glob("*.*"),
        *(path for name in folders for path in (REPOSITORY / name).rglob("*.*")),
    ]
    assert [path for path in paths if path.is_file() and marker.search(path.read_bytes())] == []


def test_bundled_packages_run_on_python_3_9() -> None:
    names = (*BUNDLED, "platforms/kubernetes/pod_start.py")
    paths = [str(REPOSITORY / "cloudtrain" / name) for name in names]
    done = _run(
        BIN / "vermin", "--quiet", "--no-tips", "--violations", "--no-parse-comments", "--target=3.9-", *paths
    )
    assert done.returncode == 0, done.stdout


def test_the_rules_for_bundled_code_cover_all_of_it() -> None:
    rules = PYPROJECT.read_text(encoding="utf-8")
    files, folders = re.findall(r'^"cloudtrain/\{([^}]*)\}.*= "py39"$', rules, re.MULTILINE)
    assert {f"{name}.py" for name in files.split(",")} | set(folders.split(",")) == set(BUNDLED)


def test_bundled_code_imports_the_standard_library_and_what_the_job_has() -> None:
    graph = grimp.build_graph(
        "cloudtrain", include_external_packages=True, exclude_type_checking_imports=True, cache_dir=None
    )
    rooms = {name.removesuffix(".py") for name in BUNDLED} - {"__init__"}
    found = [
        (module, imported)
        for module in graph.modules
        if (room := module.partition("cloudtrain.")[2].partition(".")[0]) in rooms
        for imported in graph.find_modules_directly_imported_by(module)
        if not _travels(imported, room, rooms)
    ]
    assert found == []


def _travels(imported: str, room: str, rooms: set[str]) -> bool:
    """Return whether ``imported`` exists where the bundled folder ``room`` runs."""
    package, _, rest = imported.partition(".")
    if package == "cloudtrain":
        return not rest or rest.partition(".")[0] in rooms
    return package in sys.stdlib_module_names or room in THE_JOB_HAS.get(package, ())


def test_private_modules_are_imported_in_their_own_package_only() -> None:
    graph = grimp.build_graph("cloudtrain", cache_dir=None)
    found = [
        (importer, imported)
        for importer in graph.modules
        for imported in graph.find_modules_directly_imported_by(importer)
        if "._" in imported.partition(".")[2] and importer.split(".")[1:2] != imported.split(".")[1:2]
    ]
    assert found == [], "rename the module, or import from its package"


def test_every_package_that_is_imported_is_declared() -> None:
    names = re.findall(
        r"^    ([\w.-]+)", (REPOSITORY / "setup.cfg").read_text(encoding="utf-8"), re.MULTILINE
    )
    declared = {name.replace("-", "_").lower() for name in names} | {
        "cloudtrain",
        "yaml",
        *sys.stdlib_module_names,
    }
    missing = {
        (module, name)
        for module in grimp.build_graph("cloudtrain", include_external_packages=True, cache_dir=None).modules
        if (name := module.partition(".")[0].lower()) not in declared | set(BROUGHT_BY)
    }
    assert missing == set()
    assert declared >= set(BROUGHT_BY.values())


def test_the_architecture_page_shows_the_layers_of_the_import_linter() -> None:
    contract = PYPROJECT.read_text(encoding="utf-8")
    layers = re.search(r"^layers = \[\n(.*?)^\]", contract, re.MULTILINE | re.DOTALL)
    assert layers
    page = (REPOSITORY / "docs/design/architecture.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^\| [^|]+ \| ([^|]+) \|",
        page.partition("## Layers\n")[2].partition("\n\nA job on")[0],
        re.MULTILINE,
    )
    shown = [set(re.findall(r"`(\w+)`", row)) for row in rows[2:]]
    assert shown == [set(re.split(" [:|] ", layer)) for layer in re.findall(r'"([^"]+)"', layers[1])]


def test_modules_that_the_design_names_exist() -> None:
    rooms = {path.name for path in (REPOSITORY / "cloudtrain").iterdir() if path.is_dir()}
    named = {
        name
        for page in (REPOSITORY / "docs/design").glob("*.md")
        for name in re.findall(
            r"`(?:cloudtrain\.)?([a-z_]+(?:\.[a-z_]+)+)`", page.read_text(encoding="utf-8")
        )
        if name.partition(".")[0] in rooms and not name.endswith(".db")
    }
    assert len(named) > 20
    assert (
        sorted(name for name in named if not _is_defined(REPOSITORY.joinpath("cloudtrain", *name.split("."))))
        == []
    )


def _is_defined(path: Path) -> bool:
    """Whether ``path``, with dots for slashes, is a module, or a name in one."""
    if path.is_dir() or path.with_suffix(".py").exists():
        return True
    module = path.parent.with_suffix(".py") if not path.parent.is_dir() else path.parent / "__init__.py"
    return module.exists() and path.name in module.read_text(encoding="utf-8")


def _run(command: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [command, *arguments],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
