"""Runs the same Python with the SageMaker SDK and with cloudtrain, and compares the requests.

    python compare.py [--sdk PYTHON] [--cloudtrain PYTHON] [--from-sagemaker] [CASE ...]

``PYTHON`` is an interpreter with the library, by default this one. A moto server simulates AWS.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

import boto3
from moto.server import ThreadedMotoServer

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from parity.cases import CASES  # noqa: E402
from parity.deviations import JOB, STRICTER, TUNING, WIDER, correct, differences, normalise  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sdk", default=sys.executable)
    parser.add_argument("--cloudtrain", default=sys.executable)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="start of the names of the cases to run")
    parser.add_argument(
        "--from-sagemaker",
        action="store_true",
        help="let the SDK create the estimators that cloudtrain runs; PYTHON must have both libraries",
    )
    options = parser.parse_args()
    cases = {name: code for name, code in CASES.items() if name.startswith(tuple(options.cases or [""]))}
    cases |= _golden(tuple(options.cases or [""]))

    with tempfile.TemporaryDirectory() as home:
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        server = ThreadedMotoServer(port=0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        environment = _environment(home, f"http://{host}:{port}")
        try:
            _new_account(environment)
            theirs = _capture(options.sdk, "sagemaker", cases, environment)
            _new_account(environment)
            ours = _capture(
                options.cloudtrain,
                "from_sagemaker" if options.from_sagemaker else "cloudtrain",
                cases,
                environment,
            )
        finally:
            server.stop()
    bad = [name for name in cases if not _same(name, theirs[name], ours[name])]
    print(f"{len(cases) - len(bad)} of {len(cases)} cases are the same")
    return 1 if bad else 0


def _golden(chosen: tuple[str, ...]) -> dict[str, str]:
    files = sorted((HERE.parent / "data" / "golden").glob("*.json"))
    return {
        f"golden/{path.stem}": json.loads(path.read_text())["code"]
        for path in files
        if f"golden/{path.stem}".startswith(chosen)
    }


def _environment(home: str, endpoint: str) -> dict[str, str]:
    mine = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CLOUDTRAIN_"))}
    return {
        **mine,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_CONFIG_FILE": f"{home}/aws-config",
        "AWS_EC2_METADATA_DISABLED": "true",
        "CLOUDTRAIN_RUNTIME": "toolkit",
        "HOME": home,
        "HTTPS_PROXY": "http://127.0.0.1:9",  # no request leaves this machine, not even the SDK's telemetry
        "NO_PROXY": "127.0.0.1",
        "XDG_CONFIG_HOME": home,
        "XDG_STATE_HOME": home,
    }


def _new_account(environment: dict[str, str]) -> None:
    """Delete all resources of earlier cases, and create the bucket."""
    endpoint = environment["AWS_ENDPOINT_URL"]
    urllib.request.urlopen(f"{endpoint}/moto-api/reset", data=b"", timeout=60).close()
    session = boto3.Session(environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"])
    s3 = session.client("s3", endpoint_url=endpoint, region_name="us-east-1")
    s3.create_bucket(Bucket="my-data")


def _capture(
    python: str, library: str, cases: dict[str, str], environment: dict[str, str]
) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [python, str(HERE / "capture.py"), library],
        input=json.dumps(cases),
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{python} {library}:\n{done.stderr}")
    captured: dict[str, dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return captured


def _same(name: str, sdk: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Print the differences between the two requests of a case. Returns whether all of them are expected."""
    operation = TUNING if TUNING in sdk["requests"] else JOB
    asked, made = (None if side["error"] else side["requests"].get(operation) for side in (sdk, ours))
    if asked is None or made is None:
        named = STRICTER.get(name) if asked else WIDER.get(name) if made else "both refuse it"
        print(f"{'same' if named else 'DIFFERS'}  {name}: {named or ''}")
        print(f"    SDK: {sdk['error']}\n    cloudtrain: {ours['error']}")
        return bool(named)
    made = normalise(made)
    corrected, deviations = correct(normalise(asked), made)
    found = differences(corrected, made)
    calls = f"{len(sdk['calls'])} and {len(ours['calls'])} calls"
    print(
        f"{'DIFFERS' if found else 'same'}  {name}: {calls}{''.join(f'; {deviation}' for deviation in deviations)}"
    )
    for line in found:
        print(f"    {line}")
    return not found


if __name__ == "__main__":
    sys.exit(main())
