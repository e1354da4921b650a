"""Other versions of Python than this machine's, on the releases of Debian and Ubuntu that have them."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest
from bare_debian import run_on_bare_debian

pytestmark = pytest.mark.proof(
    "a client on Python 3.10, 3.12, 3.13 and 3.14",
    real="Ubuntu 22.04 and 24.04, Debian 13 and Debian's unstable release: the installed wheel runs a job, and the "
    "unit tests that need no framework pass; each extra but the frameworks installs, and has what cloudtrain imports, "
    "on 3.10, 3.13 and 3.14",
)

PACKAGES = """
    pytest pytest-timeout pytest-xdist hypothesis moto[server]>=5 numpy ml_dtypes markdown-it-py kubernetes-validate
    lightkube cel-python docker aiosmtpd prometheus-client jinja2 pyte starlette sse-starlette uvicorn pyarrow
    psycopg[binary] httpx boto3-stubs ipython nbclient nbconvert kubeflow-trainer-api absl-py
"""
FOLDERS = "cli contract fuzz observe packaging platforms sagemaker sdk storage"
"""Of tests/unit: those of a client, and of what it shares with a job. They need no framework."""
WITHOUT = (
    "torch",  # its wheels for each version are large
    "read_as_cuda_reads_it",
    "mlflow",
    "shared_history",  # PostgreSQL, which has no wheel for each version
    "text_of_strings_stays",  # IPython on Python 3.14 splits lines at a form feed
    "real_message",
    "read_only_folder",  # users that a bare system does not have
)
CLIENTS = {"3.10": "jammy", "3.12": "noble", "3.13": "trixie", "3.14": "sid"}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", CLIENTS)
def test_a_client(version: str) -> None:
    """An installed wheel runs a job, and the unit tests pass."""
    chosen = " and ".join(f"not {name}" for name in WITHOUT)
    folders = " ".join(f"tests/unit/{name}" for name in FOLDERS.split())
    script = f"""
        set -e
        export DEBIAN_FRONTEND=noninteractive PATH=/tmp/venv/bin:$PATH
        apt-get update -qq
        apt-get install -qq -y --no-install-recommends python{version} python{version}-venv git procps \
            openssh-client strace >/dev/null
        python{version} -m venv /tmp/venv
        pip install --quiet build setuptools setuptools-scm
        git config --global --add safe.directory '*'
        python -m build --wheel --outdir /tmp/dist . >/dev/null
        pip install --quiet /tmp/dist/*.whl
        mkdir /tmp/alone && cd /tmp/alone
        echo 'import os, sys; print("rank", os.environ["RANK"], "has", *sys.version_info[:2])' >train.py
        cloudtrain submit train.py --processes-per-host 2 --name alone
        cd - >/dev/null
        pip install --quiet {" ".join(f"'{package}'" for package in PACKAGES.split())}
        PYTHONPATH=$PWD python -m pytest -q -n 2 -p no:cacheprovider -k '{chosen}' {folders}
    """
    output = run_on_bare_debian("--suite", CLIENTS[version], "sh", "-c", script, timeout=1700)
    for rank in (0, 1):
        assert f"[rank {rank}] rank {rank} has {version.replace('.', ' ')}\n" in output
    assert "status        Completed\n" in output


FRAMEWORKS = {"torch", "tensorflow", "mxnet", "horovod"}
"""Extras that download gigabytes, or are compiled. Their own tests install them."""


def _extras() -> list[str]:
    config = configparser.ConfigParser()
    config.read(Path(__file__).parents[2] / "setup.cfg", encoding="utf-8")
    return sorted({*config["options.extras_require"]} - {*FRAMEWORKS, "dev"})


def _installed(output: str) -> list[str]:
    return sorted(re.findall(r"^\| `(\S+)` \| \+\d+ \| \+\d+ \|$", output, re.MULTILINE))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", CLIENTS)
def test_the_extras_of(version: str) -> None:
    """Each installs into an empty environment, next to the wheel, and has all that cloudtrain imports of it."""
    script = f"""
        set -e
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq
        apt-get install -qq -y --no-install-recommends python{version} python{version}-venv git openmpi-bin >/dev/null
        python{version} -m venv /tmp/venv
        /tmp/venv/bin/pip install --quiet --upgrade pip
        /tmp/venv/bin/python scripts/extra_sizes {" ".join(_extras())}
    """
    output = run_on_bare_debian("--suite", CLIENTS[version], "sh", "-c", script, timeout=1700)
    assert _installed(output) == _extras()


@pytest.mark.timeout(1800)
def test_the_extras_here() -> None:
    sizes = [sys.executable, Path(__file__).parents[2] / "scripts" / "extra_sizes", *_extras()]
    assert (
        _installed(subprocess.run(sizes, check=True, stdout=subprocess.PIPE, text=True).stdout) == _extras()
    )
