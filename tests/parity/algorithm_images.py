"""Digests of the URIs of the images of scikit-learn, XGBoost and AWS's own algorithms, by name.

    python tests/parity/algorithm_images.py tests/data/algorithm_images.json

with the interpreter of the SageMaker SDK, writes those of `image_uris.retrieve`, over all regions and versions; and
in one region over all scopes, on instances with and without GPUs, with Graviton, and on Trainium.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

INSTANCES = (None, "ml.m5.xlarge", "ml.g5.xlarge", "ml.p3.2xlarge", "ml.c6g.xlarge", "ml.trn1.2xlarge")
SCOPES = (None, "training", "inference", "inference_graviton")


def digests(
    names: Iterable[str],
    regions: Iterable[str],
    versions: Mapping[str, Iterable[str]],
    retrieve: Callable[..., str],
) -> dict[str, dict[str, Any]]:
    """By name: the number of URIs, those refused included, and the SHA-256 of all.

    Args:
        retrieve: takes the arguments of ``image_uris.retrieve``, and returns a URI or raises any exception.
    """
    regions = sorted(regions)
    return {name: _digest(name, regions, versions[name], retrieve) for name in names}


def _digest(
    name: str, regions: list[str], versions: Iterable[str], retrieve: Callable[..., str]
) -> dict[str, Any]:
    everywhere = [(region, "training", "ml.m5.xlarge") for region in regions]
    in_one = [("us-east-1", scope, kind) for scope in SCOPES for kind in INSTANCES]
    lines = []
    for version in (None, *versions):
        for region, scope, kind in (*everywhere, *in_one):
            try:
                uri = retrieve(name, region, version=version, instance_type=kind, image_scope=scope)
            except Exception:
                uri = "refused"
            lines.append(f"{region} {version} {scope} {kind} {uri}")
    return {"count": len(lines), "sha256": hashlib.sha256("\n".join(lines).encode()).hexdigest()}


def main() -> None:
    from functools import cache

    from sagemaker import image_uris, utils

    utils._botocore_resolver = cache(utils._botocore_resolver)  # it reads botocore's files on each call

    names = (
        *("sklearn", "xgboost", "blazingtext", "factorization-machines", "forecasting-deepar"),
        *("image-classification", "ipinsights", "kmeans", "knn", "lda", "linear-learner", "ntm"),
        *("object-detection", "object2vec", "pca", "randomcutforest", "semantic-segmentation", "seq2seq"),
    )
    versions: dict[str, list[str]] = {}
    regions = {"xx-north-1"}
    for name in names:
        config = image_uris.config_for_framework(name)
        found = config.get("training", config)
        versions[name] = [*found["versions"], *found.get("version_aliases", {})]
        regions.update(region for image in found["versions"].values() for region in image["registries"])
    recorded = {
        "source": "image_uris.retrieve of sagemaker 2.257.7",
        "regions": sorted(regions),
        "versions": versions,
        "digests": digests(names, regions, versions, image_uris.retrieve),
    }
    Path(sys.argv[1]).write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
