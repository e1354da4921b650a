"""Records requests of the SageMaker SDK as golden files.

    python tests/parity/record_golden.py CASE ...

with the interpreter of the SageMaker SDK and moto. ``CASE`` is the start of names in `parity.cases`.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

import boto3  # noqa: E402
from moto import mock_aws  # noqa: E402
from parity.capture import capture  # noqa: E402
from parity.cases import CASES  # noqa: E402

GOLDEN = HERE.parent / "data" / "golden"


def main(starts: tuple[str, ...]) -> None:
    for name, code in CASES.items():
        if not name.startswith(starts):
            continue
        with mock_aws():
            boto3.client("s3").create_bucket(Bucket="my-data")
            captured = capture(code, "sagemaker")
        case = name.replace("/", "_")
        recorded = {"case": case, "sdk": f"sagemaker {version('sagemaker')}", "code": code, **captured}
        (GOLDEN / f"{case}.json").write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
