"""Which tests run together on one worker, and which run only in a soak: a plugin of `conftest`.

pytest-xdist distributes groups (``--dist loadgroup``). A group shares what is expensive to start: a launch of ranks, a
container engine, a server. CI leaves the tests marked ``soak`` out; ``./scripts/soak``, which is ``pytest --soak``,
runs these and no others. Tests marked ``gpu`` are left out where there is no GPU, and tests on a Kubernetes API server
where it is not built; ``pytest --kubernetes`` runs the latter and no others.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from zlib import crc32

import gpus
import kube_programs
import pytest
import variants
from end_of_run import deselect

from cloudtrain.contract import gpu_count

SOAK = Path(__file__).parent / "soak"
PODMAN_IN_CI = ("test_every_kind_of_failure[podman]",)
"""The tests with Podman that CI runs: jobs in containers, and how they end."""

LAUNCHES: dict[str, tuple[str, ...]] = {
    "test_distributed_adasum.py": (),
    "test_distributed_cases.py": ("count",),
    "test_numpy_cases.py": ("way", "count"),
    "test_tensorflow_cases.py": ("launch",),
}
"""Files whose tests look at the results of a cached launch, and the parameters that choose the launch."""

STARTED = {
    "warm_tensorflow": "tensorflow",
    "podman": "podman",
    "engine": "docker",
    "docker": "docker",
    "moto_server": "moto",
    "python39": "python39",
    "slurm": "slurm-{file}",  # a cluster starts in a second, and its tests wait a lot: several workers share them
    "slurm_clusters": "slurm-{file}",
}
"""Groups of tests that share what a session's fixture starts, by that fixture or by the parameter that names it."""

ENDED_WITH_GROUP = ("kube_server",)
"""Fixtures of a session that end after the last test of their group: an idle API server takes 4 % of a processor."""

KERAS = ("test_checkpoint_variables.py", "test_keras_adapter.py", "test_keras_optimizers.py")
"""Files that import Keras, which takes 4 s: they run on one worker."""

KUBERNETES_SERVERS = 2
"""Workers that start a Kubernetes API server."""

FIRST = ("test_bare_debian.py", "test_weather.py")
"""Files whose tests wait for minutes, and use little CPU: one worker begins with each, and the others use the CPU."""

AT_THE_END = 0.25
"""The share of unit tests that run last: they are short, so that all workers end at the same time."""

MATRICES: dict[str, tuple[str, ...]] = {
    "test_a_host_is_killed": ("victim", "launch"),
    "test_a_script_may_have_the_name_of_a_module": ("name", "distribution"),
    "test_one_rank_fails": ("case", "mpi", "run_mpi", "launch"),
    "test_the_job_waits_for_rank_0_in_any_case": ("distribution", "notify"),
    "test_the_other_ranks_exit_with_an_error": ("way", "place", "rank"),
}
"""Tests that combine every failure with every launcher or rank, and the parameters they combine.

CI runs a diagonal of each matrix: every value of the first parameter once, each with another combination of the
others. A soak runs the rest.
"""


LAUNCHERS = ("launch", "run_mpi", "way")
"""Parameters that choose a launcher. CI runs a test with every second launcher, the next test with the others."""

SOAK_LAUNCHES = ("tf-keras", "alone, training")
"""Cached launches that only a soak runs: their cases are those of Keras 3 on two ranks."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the tests that CI leaves out, and no others")
    needs = "run the tests that need a Kubernetes API server, and no others"
    parser.addoption("--kubernetes", action="store_true", help=needs)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "soak: takes long; runs in ./scripts/soak only")
    config.option.loadscopereorder = False  # of pytest-xdist: see _order
    config.addinivalue_line(
        "markers", "proof(row, real|imitated|text): what docs/reference/proof.md shows of it"
    )
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU; deselected where there is none")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without Python's garbage collector, which would look at all tests again and again, then and later."""
    gc.disable()
    yield
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if group := _group(item):
            item.add_marker(pytest.mark.xdist_group(group))
            if getattr(config.option, "loadgroup", False):
                _append_group(item, group)
    _mark_off_diagonals(items)
    _mark_every_second_launcher(items)
    named = tuple(argument for argument in config.args if "::" in argument)
    if not named:
        variants.check(items, filter(is_soak, items), filter(_needs_kubernetes, items))
    if not gpu_count():
        deselect(config, items, lambda item: item.get_closest_marker("gpu") is not None, gpus.WHY)
    if config.getoption("--kubernetes"):
        deselect(config, items, lambda item: not _needs_kubernetes(item))
    elif kube_programs.find_server() is None:
        deselect(config, items, _needs_kubernetes, kube_programs.LEFT_OUT)
    if config.getoption("--soak"):
        deselect(config, items, lambda item: not is_soak(item))
    else:
        why = "they take long: ./scripts/soak"
        deselect(config, items, lambda item: is_soak(item) and not item.nodeid.startswith(named), why)
    if getattr(config.option, "loadgroup", False):
        _order(items)


def _order(items: list[pytest.Item]) -> None:
    """Put those that take long first, then the largest groups, as pytest-xdist does, and the rest in their order.

    Unit tests use the CPU, and most others wait: with unit tests between the others, some worker always uses it.
    """
    unit: list[pytest.Item] = []
    others: dict[str, list[pytest.Item]] = {}
    for item in items:
        group = _group(item)
        if group or "unit" not in item.path.parts:
            others.setdefault(group or item.nodeid, []).append(item)
        else:
            unit.append(item)

    def key(together: list[pytest.Item]) -> tuple[bool, int]:
        return together[0].path.name not in FIRST, -len(together) if _group(together[0]) else 0

    between = (1 - AT_THE_END) * len(unit) / max(1, len(others))
    items.clear()
    for number, together in enumerate(sorted(others.values(), key=key)):
        items += [*together, *unit[int(number * between) : int((number + 1) * between)]]
    items += unit[int(len(others) * between) :]


@pytest.hookimpl(trylast=True)  # after the fixtures of the test
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if not getattr(item.config.option, "loadgroup", False):
        return  # tests of other groups may be between those of this one
    fixtures: dict[str, Any] = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    started = [fixtures[name][-1] for name in ENDED_WITH_GROUP if name in fixtures]
    if started and (nextitem is None or _group(nextitem) != _group(item)):
        for fixture in started:
            fixture.finish(item._request)  # type: ignore[attr-defined]


def _append_group(item: pytest.Item, group: str) -> None:
    """Do what pytest-xdist 3.8 attempts: it sets an attribute from which pytest 9.2 no longer makes the node ID."""
    identity: Any = getattr(item, "_id", None)
    if identity is not None:
        item._id = type(identity).parse(f"{item.nodeid}@{group}")  # type: ignore[attr-defined]


def _mark_off_diagonals(items: list[pytest.Item]) -> None:
    """Mark the combinations of each matrix that CI leaves out."""
    matrices: dict[tuple[Path, str], list[tuple[pytest.Item, list[str]]]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        if name in MATRICES:
            parameters = item.callspec.params  # type: ignore[attr-defined]
            cell = [repr(parameters[axis]) for axis in MATRICES[name] if axis in parameters]
            matrices.setdefault((item.path, name), []).append((item, cell))
    for cells in matrices.values():
        rows: dict[str, list[pytest.Item]] = {}
        for item, cell in cells:
            rows.setdefault(cell[0], []).append(item)
        for number, row in enumerate(rows.values()):
            for place, item in enumerate(row):
                if place != -number % len(row):
                    item.add_marker(pytest.mark.soak)


def _mark_every_second_launcher(items: list[pytest.Item]) -> None:
    rows: dict[Path, list[str]] = {}
    columns: dict[str, list[str]] = {}
    for item in items:
        name = getattr(item, "originalname", item.name)
        parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("launch") in SOAK_LAUNCHES:
            item.add_marker(pytest.mark.soak)
        axis = next((axis for axis in LAUNCHERS if axis in parameters), None)
        if axis is None or name in MATRICES or item.path.name in LAUNCHES:
            continue
        tests = rows.setdefault(item.path, [])
        if name not in tests:
            tests.append(name)
        values = columns.setdefault(f"{item.path}:{axis}", [])
        if repr(parameters[axis]) not in values:
            values.append(repr(parameters[axis]))
        if (tests.index(name) + values.index(repr(parameters[axis]))) % 2:
            item.add_marker(pytest.mark.soak)


def is_soak(item: pytest.Item) -> bool:
    if "integration" in item.path.parts and _group(item) == "podman" and item.name not in PODMAN_IN_CI:
        return True
    marked = item.get_closest_marker("soak") is not None
    return marked or _is_below_soak(item.path) or variants.is_variant(item)


@cache
def _is_below_soak(path: Path) -> bool:
    return SOAK in path.parents


def _needs_kubernetes(item: pytest.Item) -> bool:
    """Whether it uses the server, or a platform of the name, as a parameter of the conformance suite does."""
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    return "kube_server" in fixtures or parameters.get("place") == "kubernetes"


def _group(item: pytest.Item) -> str | None:
    parameters: dict[str, Any] = getattr(getattr(item, "callspec", None), "params", {})
    fixtures = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    if item.get_closest_marker("gpu"):
        return "gpu"
    if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
        return (
            "hypothesis"  # its first test on a worker reads the constants of all loaded modules, for seconds
        )
    if _needs_kubernetes(item):
        return f"kubernetes-{crc32(item.path.stem.encode()) % KUBERNETES_SERVERS}"
    names = [value for value in parameters.values() if isinstance(value, str)]
    for name, group in STARTED.items():
        if name in names or name in fixtures:
            return group.format(file=item.path.stem)
    if item.path.name in FIRST:
        return item.path.stem
    if item.path.name in KERAS:
        return "keras"
    if item.path.name in LAUNCHES:
        values = (str(parameters[name]) for name in LAUNCHES[item.path.name])
        return "-".join([item.path.stem, *values])
    shared = [name for name, definitions in fixtures.items() if definitions[-1].scope == "module"]
    if shared:
        return "-".join([item.path.stem, *(str(parameters[name]) for name in shared if name in parameters)])
    return None
