"""`aws s3 cp [--recursive] FROM TO`, as cells of notebooks call it, with boto3."""

from __future__ import annotations

import sys
from pathlib import Path

import boto3


def main(words: list[str]) -> None:
    source, target = [word for word in words if not word.startswith("--")][-2:]
    s3 = boto3.client("s3")
    if source.startswith("s3://"):
        bucket, _, key = source.removeprefix("s3://").partition("/")
        for found in s3.list_objects_v2(Bucket=bucket, Prefix=key).get("Contents", []):
            name = found["Key"].removeprefix(key).lstrip("/")
            path = Path(target) / name if name else Path(target)
            path.parent.mkdir(parents=True, exist_ok=True)
            s3.download_file(bucket, found["Key"], str(path))
    else:
        bucket, _, key = target.removeprefix("s3://").partition("/")
        s3.upload_file(source, bucket, key)


if __name__ == "__main__":
    main(sys.argv[1:])
