"""On a bare Debian scripts/test installs every system package that the tests need, and each of them works.

The Python environments are this machine's; tests/soak builds them on the bare Debian too. CI runs this file when it has
changed, or a file that decides what is installed: scripts/test, scripts/_environment, scripts/bare_debian,
scripts/build_mxnet, scripts/build_tensorflow, scripts/build_frameworks, setup.cfg.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from bare_debian import run_on_bare_debian
from end_of_run import find_python
from pages import PASSED, lock_line, parametrize_pages

FILES = [
    *(
        "/usr/bin/git",
        "/usr/bin/mpirun",
        "/usr/lib/*/libmpi.so.40",
        "/usr/lib/*/libgomp.so.1",
        "/usr/lib/*/libquadmath.so.0",
        "/usr/bin/nsenter",
    ),
    *("/usr/sbin/ip", "/usr/sbin/dockerd", "/usr/sbin/iptables", "/usr/sbin/runc", "/usr/bin/podman"),
    *(
        "/usr/lib/podman/netavark",
        "/usr/lib/podman/aardvark-dns",
        "/usr/bin/docker-registry",
        "/usr/sbin/sshd",
    ),
    *("/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch", "/usr/lib/*/libpmix.so"),
    *(
        "/usr/sbin/slurmdbd",
        "/usr/lib/*/slurm-wlm/accounting_storage_mysql.so",
        "/usr/sbin/mariadbd",
        "/usr/bin/ch-run",
        "/usr/bin/qsub",
    ),
]

TESTS = [
    "tests/unit/packaging/test_pack_git.py::test_a_clean_checkout",
    "tests/integration/distributed_numpy/test_numpy_failures.py::test_init_after_shutdown[mpi-4]",
    "tests/integration/distributed_numpy/test_numpy_failures.py::test_init_after_shutdown[mpi-5]",
    "tests/integration/mxnet/test_mxnet_ranks.py::test_all_cases[2]",
    "tests/integration/hosts/test_hosts_start.py::test_mpi_reaches_the_other_host",
    "tests/integration/container/test_engines_alone.py::test_what_a_container_finds",
    "tests/integration/slurm/test_slurm_cluster.py::test_clusters_side_by_side_and_accounting",
]
"""For git, both versions of Open MPI, MXNet, linked hosts, Docker and Podman, and Slurm with its accounting."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    parametrize_pages(metafunc, "this_file", ["tests/e2e/test_bare_debian.py"])


@pytest.mark.timeout(900)
def test_every_part_is_installed_and_works(
    this_file: str, record_property: Callable[[str, object], None]
) -> None:
    pythons = {"MXNET": find_python("CLOUDTRAIN_MXNET_PYTHON", "mxnet")}
    pythons["TENSORFLOW"] = find_python("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow")
    pythons["FRAMEWORKS"] = find_python("CLOUDTRAIN_FRAMEWORKS_PYTHON", "frameworks")
    shared, variables = [sys.prefix], [f"CLOUDTRAIN_VENV={sys.prefix}"]
    for name, python in pythons.items():
        if python is None:
            assert os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1", f"{name} is not installed"
            pytest.skip(f"{name} is not installed: run ./scripts/build_{name.lower()}")
        shared.append(str(Path(python).parents[1].resolve()))
        variables.append(f"CLOUDTRAIN_{name}_PYTHON={shared[-1]}/bin/python")
    if not sys.base_prefix.startswith("/usr"):
        shared.append(sys.base_prefix)
    script = f"""
        set -e
        apt-get update -qq
        apt-get install -qq -y --no-install-recommends python3 >/dev/null
        ./scripts/test -q -p no:cacheprovider {" ".join(TESTS)}
        for file in {" ".join(FILES)}; do
            [ -e $file ] || {{ echo "missing: $file"; exit 9; }}
        done
        echo "all parts are there"
    """
    options = [argument for folder in shared for argument in ("--share", folder)]
    output = run_on_bare_debian(*options, "CI=true", *variables, "sh", "-c", script, timeout=800)
    assert output.endswith("all parts are there\n")
    assert " skipped" not in output
    record_property(PASSED, lock_line(this_file))
