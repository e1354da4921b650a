"""The README's two scripts on a bare Debian, which build every environment themselves."""

from __future__ import annotations

import re

import pytest
from bare_debian import run_on_bare_debian

TESTS = [
    *("tests/unit", "tests/integration/local/test_mpirun.py", "tests/integration/distributed_numpy"),
    *(
        "tests/integration/hosts/test_hosts_start.py",
        "tests/integration/mxnet",
        "tests/integration/tensorflow",
    ),
    "tests/e2e/test_framework_examples.py",
    *("tests/integration/container/test_engines_alone.py", "tests/integration/images"),
]
"""The unit tests, and those that need a part of the system."""


@pytest.mark.timeout(1800)
def test_the_demo_trains_a_model() -> None:
    output = run_on_bare_debian("./scripts/demo", timeout=1700)
    assert re.search(r"^status +Completed$", output, re.MULTILINE), output
    assert re.search(r"^model +s3://demo/jobs/\S+/model.tar.gz$", output, re.MULTILINE), output


@pytest.mark.timeout(3600)
def test_the_tests_pass() -> None:
    options = ("-q", "-n", "2", "--dist", "loadgroup")
    output = run_on_bare_debian("CI=true", "./scripts/test", *options, *TESTS, timeout=3500)
    assert re.search(r"^\d+ passed(, \d+ warnings)? in ", output, re.MULTILINE), output
