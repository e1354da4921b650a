"""The published schemas of Kubernetes, strictly: a field that a version does not have is an error.

A real server drops unknown fields silently, and the one that the tests run is older than the fields that matter
most. `kubernetes_validate` reads a version's definitions, megabytes of JSON, in each call; here they are read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import jsonschema
from kubernetes_validate import utils
from referencing import Registry, Resource

VERSIONS = ("1.29", "1.33", "1.37")
"""The oldest version that we support, the middle, and the newest."""


def schema_errors(document: Mapping[str, Any], version: str) -> list[str]:
    """The errors of a document, such as ``spec.template: 'x' is not of type 'object'``.

    Raises:
        LookupError: the version has no such kind; kinds of CRDs are in no version.
    """
    group = re.sub(r"^([^./]*)(?:\.[^/]*)?/", r"\1-", document["apiVersion"])
    validator = _validator(version, f"{document['kind'].lower()}-{group}")
    return sorted(set(_messages(validator.iter_errors(document))))


def validate_everywhere(documents: list[dict[str, Any]]) -> None:
    """Fail if one of the documents is not valid in one of `VERSIONS`."""
    for document in documents:
        for version in VERSIONS:
            found = schema_errors(document, version)
            name = document.get("metadata", {}).get("name")
            assert not found, f"{document['kind']} {name} in Kubernetes {version}: {'; '.join(found)}"


def _messages(errors: Iterator[Any]) -> Iterator[str]:
    for error in errors:
        if error.context:
            yield from _messages(iter(error.context))
        else:
            yield f"{'.'.join(map(str, error.absolute_path))}: {error.message}"[:500]


@cache
def _validator(version: str, name: str) -> Any:
    folder = f"kubernetes-json-schema/v{version}.0-local-strict"
    try:
        schema = utils.schema_contents(f"{folder}/{name}.json", version)
    except FileNotFoundError:
        raise LookupError(f"Kubernetes {version} has no kind {name}") from None
    registry: Any = Resource.from_contents(schema) @ _definitions(folder, version)
    return jsonschema.validators.Draft202012Validator(schema, registry=registry)


@cache
def _definitions(folder: str, version: str) -> Any:
    return Resource.from_contents(utils.schema_contents(f"{folder}/_definitions.json", version)) @ Registry()
