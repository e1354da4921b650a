"""Writes cloudtrain/aws/images.json: facts about AWS's images, out of the SageMaker SDK's own files.

    python scripts/image_data.py FOLDER_OF_THE_INSTALLED_SDK

Accounts, repositories and suffixes are taken over; versions are not, but for those whose tags have a suffix: all
other URIs follow a pattern, that of newer versions too.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any

TARGET = Path(__file__).parent.parent / "cloudtrain" / "aws" / "images.json"

DLC = "763104351884"
"""The account of the Deep Learning Containers in us-east-1."""

P4D = {
    **dict.fromkeys(
        ["tensorflow-training:2.3-gpu-py37", "pytorch-training:1.6-gpu-py36"], "cu110-ubuntu18.04-v3"
    ),
    "pytorch-training:1.6-gpu-py3": "cu110-ubuntu18.04-v3",
    "pytorch-training:1.6.0-gpu-py36": "cu110-ubuntu18.04",
    "pytorch-training:1.6.0-gpu-py3": "cu110-ubuntu18.04",
    "tensorflow-training:2.3.1-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-training:2.3.2-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-training:1.15-gpu-py37": "cu110-ubuntu18.04-v8",
    "tensorflow-training:1.15.4-gpu-py37": "cu110-ubuntu18.04",
    "tensorflow-training:1.15.5-gpu-py37": "cu110-ubuntu18.04",
    "mxnet-training:1.8-gpu-py37": "cu110-ubuntu16.04-v1",
    "mxnet-training:1.8.0-gpu-py37": "cu110-ubuntu16.04",
}
"""Suffixes of the images that ran on the first p4d instances and had the data parallel library (image_uris.py)."""

DATA_PARALLEL = {
    "pytorch": "1.6 1.6.0 1.7 1.7.1 1.8 1.8.0 1.8.1 1.9 1.9.0 1.9.1 1.10 1.10.0 1.10.2 1.11 1.11.0 1.12 1.12.0 1.12.1"
    " 1.13.1 2.0.0 2.0.1 2.1.0 2.1.2 2.2.0",
    "tensorflow": "2.3 2.3.1 2.3.2 2.4 2.4.1 2.4.3 2.5 2.5.0 2.5.1 2.6 2.6.0 2.6.2 2.6.3 2.7 2.7.1 2.8 2.8.0 2.9 2.9.1"
    " 2.9.2 2.10 2.10.1 2.11 2.11.0",
}
"""Versions whose images have the data parallel library (fw_utils.py)."""


def main(sdk: Path) -> None:
    configs = {
        name: _config(sdk, name)
        for name in ("pytorch", "tensorflow", "mxnet", "huggingface", "pytorch-smp", "pytorch-neuron")
    }
    training = {name: config.get("training", config) for name, config in configs.items()}
    accounts: dict[str, dict[str, str]] = {"dlc": {}, "legacy": {}, "smp": {}}
    for name, config in training.items():
        for image in _images(config["versions"]):
            kind = "dlc" if image["registries"].get("us-east-1") == DLC else "legacy"
            accounts["smp" if name == "pytorch-smp" else kind].update(image["registries"])
    neuron = training["pytorch-neuron"]["versions"]
    for kind, name in (("profiler", "detailed-profiler"), ("rules", "debugger")):
        accounts[kind] = _config(sdk, name)["versions"]["latest"]["registries"]
    compiler = {
        name: _config(sdk, f"{name}-training-compiler")["training"]["versions"]
        for name in ("pytorch", "huggingface")
    }
    data = {
        "source": f"image_uri_config of the SageMaker Python SDK {sdk_version(sdk)}",
        "date": datetime.date.today().isoformat(),
        "accounts": {kind: dict(sorted(regions.items())) for kind, regions in accounts.items()},
        "huggingface": {
            version: {
                base: image["container_version"]["gpu"]
                for base, image in images.items()
                if "container_version" in image
            }
            for version, images in training["huggingface"]["versions"].items()
            if any("container_version" in image for image in images.values())
        },
        "neuron": {
            version: f"{max(image['sdk_versions'])}-{image['container_version']['trn']}"
            for version, image in neuron.items()
        },
        "pythons": {
            **{
                name: _pythons(training[name])
                for name in ("pytorch", "tensorflow", "mxnet", "pytorch-neuron")
            },
            **_huggingface_pythons(training["huggingface"]),
            "pytorch-smp": _with_aliases(training["pytorch-smp"]),
        },
        "compiler": {
            **{version: images["py_versions"][0] for version, images in compiler["pytorch"].items()},
            **{
                f"{version} {base}": f"{image['py_versions'][0]}-{image['container_version']['gpu']}"
                for version, images in compiler["huggingface"].items()
                for base, image in images.items()
                if "py_versions" in image
            },
        },
        "p4d": P4D,
        "dataparallel": DATA_PARALLEL,
    }
    TARGET.write_text(json.dumps(data, indent=1) + "\n")


def _config(sdk: Path, name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((sdk / "image_uri_config" / f"{name}.json").read_text())
    return config


def _pythons(config: dict[str, Any]) -> dict[str, str]:
    """The ``py_version`` of the images of each version."""
    return {
        version: " ".join(
            images.get("py_versions") or sorted(name for name in images if name.startswith("py"))
        )
        for version, images in config["versions"].items()
    }


def _with_aliases(config: dict[str, Any]) -> dict[str, str]:
    """Likewise, with the other names of versions."""
    found = _pythons(config)
    return {**found, **{alias: found[version] for alias, version in config["version_aliases"].items()}}


def _huggingface_pythons(config: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Likewise, by the framework below, and the versions of both: ``4.49.0 2.5.1``."""
    found: dict[str, dict[str, str]] = {"huggingface-pytorch": {}, "huggingface-tensorflow": {}}
    for version, images in config["versions"].items():
        for base, image in images.items():
            if "py_versions" in image:
                name = "pytorch" if base.startswith("pytorch") else "tensorflow"
                pair = f"{version} {base.removeprefix(name)}"
                found[f"huggingface-{name}"][pair] = " ".join(image["py_versions"])
    return found


def _images(tree: dict[str, Any]) -> list[dict[str, Any]]:
    """All descriptions of images at whatever depth."""
    if "registries" in tree:
        return [tree]
    return [image for value in tree.values() if isinstance(value, dict) for image in _images(value)]


def sdk_version(sdk: Path) -> str:
    found = importlib.metadata.distributions(path=[str(sdk.parent)], name="sagemaker")
    return next(iter(found)).version


if __name__ == "__main__":
    main(Path(sys.argv[1]))
