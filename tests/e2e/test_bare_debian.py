"""scripts/test on a bare Debian installs every part of the system that the tests need, and each of them works.

The Python environments are this machine's: tests/soak builds them too.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from documents import REPOSITORY
from end_of_run import find_python

CACHE = Path("~/.cache/cloudtrain-bench/bare-debian-packages").expanduser()

FILES = [
    *(
        "/usr/bin/git",
        "/usr/bin/mpirun",
        "/usr/lib/*/libmpi.so.40",
        "/usr/lib/*/libgomp.so.1",
        "/usr/bin/nsenter",
        "/usr/sbin/ip",
    ),
    *(
        "/usr/sbin/dockerd",
        "/usr/sbin/iptables",
        "/usr/sbin/runc",
        "/usr/bin/podman",
        "/usr/bin/docker-registry",
    ),
    *("/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns", "/usr/sbin/sshd"),
]

TESTS = [
    "tests/unit/packaging/test_pack_git.py",
    "tests/integration/distributed_numpy/test_numpy_failures.py::test_init_after_shutdown",
    "tests/integration/mxnet/test_mxnet_ranks.py::test_all_cases",
    "tests/integration/hosts/test_hosts_start.py::test_mpi_reaches_the_other_host",
    "tests/integration/container/test_engines_alone.py",
]
"""One or more of each part: git, Open MPI, MXNet's libmpi, linked hosts, Docker and Podman."""


@pytest.mark.timeout(900)
def test_every_part_is_installed_and_works() -> None:
    pythons = {
        "CLOUDTRAIN_MXNET_PYTHON": find_python("CLOUDTRAIN_MXNET_PYTHON", "mxnet"),
        "CLOUDTRAIN_TENSORFLOW_PYTHON": find_python("CLOUDTRAIN_TENSORFLOW_PYTHON", "tensorflow"),
    }
    if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") != "1":
        if os.getuid() != 0:
            pytest.skip("a bare Debian needs root")
        if None in pythons.values():
            pytest.skip(
                "TensorFlow or MXNet is not installed: ./scripts/build_tensorflow, ./scripts/build_mxnet"
            )
    environments = [
        sys.prefix,
        *(str(Path(python).parents[1].resolve()) for python in pythons.values() if python),
    ]
    bases = [sys.base_prefix] if not sys.base_prefix.startswith("/usr") else []
    shared = [argument for folder in (*environments, *bases) for argument in ("--share", folder)]
    variables = [f"{name}={python}" for name, python in {"CLOUDTRAIN_VENV": sys.prefix, **pythons}.items()]
    python = "apt-get update -qq && apt-get install -qq -y --no-install-recommends python3 >/dev/null"
    found = f"for file in {' '.join(FILES)}; do [ -e $file ] || {{ echo missing: $file; exit 9; }}; done"
    script = (
        f"set -e; {python}; ./scripts/test -q -p no:cacheprovider {' '.join(TESTS)}; {found}; echo all there"
    )
    done = subprocess.run(
        [
            REPOSITORY / "scripts" / "bare_debian",
            *shared,
            "--cache",
            CACHE,
            "CI=true",
            *variables,
            "sh",
            "-c",
            script,
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("all there\n")
    assert "skipped" not in done.stdout
