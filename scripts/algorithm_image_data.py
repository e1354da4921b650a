"""Writes cloudtrain/aws/algorithm_images.json: AWS's images of scikit-learn, XGBoost and its own algorithms.

    python scripts/algorithm_image_data.py FOLDER_OF_THE_INSTALLED_SDK

The images are those of the SageMaker SDK's own files, by scope and version, as ``accounts/repository:tag``.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from image_data import sdk_version

TARGET = Path(__file__).parent.parent / "cloudtrain" / "aws" / "algorithm_images.json"

ALGORITHMS = (
    *("blazingtext", "factorization-machines", "forecasting-deepar", "image-classification", "ipinsights"),
    *("kmeans", "knn", "lda", "linear-learner", "ntm", "object-detection", "object2vec", "pca"),
    *("randomcutforest", "semantic-segmentation", "seq2seq"),
)

GRAVITON_TAGS = {
    "xgboost": {"1.5-1": "1.5-1-arm64", "1.3-1": "1.3-1-arm64"},
    "sklearn": {"1.0-1": "1.0-1-arm64-cpu-py3"},
}
"""The tags of images for Graviton (image_uris.py)."""


def main(sdk: Path) -> None:
    accounts: dict[str, dict[str, str]] = {}
    images = {}
    for name in ("sklearn", "xgboost", *ALGORITHMS):
        config = json.loads((sdk / "image_uri_config" / f"{name}.json").read_text())
        scopes = config if "scope" not in config else dict.fromkeys(config["scope"], config)
        images[name] = {scope: _images(name, scope, found, accounts) for scope, found in scopes.items()}
    data = {
        "source": f"image_uri_config of the SageMaker Python SDK {sdk_version(sdk)}",
        "date": datetime.date.today().isoformat(),
        "accounts": accounts,
        "images": images,
    }
    TARGET.write_text(json.dumps(data, indent=1) + "\n")


def _images(name: str, scope: str, config: dict[str, Any], accounts: dict[str, Any]) -> dict[str, str]:
    """The images of one scope, by version. The accounts that they need are added to ``accounts``."""
    found = {}
    aliases = config.get("version_aliases", {})
    for version in [*config["versions"], *aliases]:
        image = config["versions"][aliases.get(version, version)]
        registries = dict(sorted(image["registries"].items()))
        kind = next((kind for kind, known in accounts.items() if known == registries), None)
        if kind is None:
            kind = name if name not in accounts else f"{name}-{version}"
            accounts[kind] = registries
        parts = (version, *image.get("processors", ()), *image.get("py_versions", ()))
        tag = GRAVITON_TAGS[name][version] if scope == "inference_graviton" else "-".join(parts)
        found[version] = f"{kind}/{image['repository']}:{tag}"
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
