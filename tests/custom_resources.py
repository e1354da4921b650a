"""The custom resources that we render, strictly: schema, lists with keys, and CEL rules.

An API server old enough to be built here knows no CEL, and drops unknown fields silently.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

CRDS = Path(__file__).parent / "crds"
PLURALS = {"JobSet": "jobsets", "TrainJob": "trainjobs", "MPIJob": "mpijobs"}
OPEN = "x-kubernetes-preserve-unknown-fields"
RULES = "x-kubernetes-validations"


@cache
def definition(plural: str) -> dict[str, Any]:
    """The CustomResourceDefinition."""
    loaded: dict[str, Any] = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return loaded


def resource_errors(document: Mapping[str, Any]) -> list[str]:
    """The errors of ``document`` by its CRD, unknown fields included. Rules about changes are left out."""
    version = definition(PLURALS[document["kind"]])["spec"]["versions"][0]
    schema = version["schema"]["openAPIV3Schema"]
    errors = jsonschema.Draft202012Validator(_strict(schema)).iter_errors(document)
    found = [f"{'.'.join(map(str, error.absolute_path))}: {error.message}"[:500] for error in errors]
    return sorted({*found, *_broken_rules(schema, document, "")})


def _strict(schema: Any) -> Any:
    """``schema``, in which an object has no fields but its own."""
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get(OPEN) and isinstance(schema.get("type"), str):
        strict["additionalProperties"] = False
    if schema.get("type") == "object" and set(schema) == {"type"}:
        strict["additionalProperties"] = True  # ObjectMeta
    return strict


def _broken_rules(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    for rule in schema.get(RULES, []):
        if "oldSelf" not in rule["rule"] and not _holds(rule["rule"], value):
            yield f"{path}: {rule.get('message', rule['rule'])}"
    keys = schema.get("x-kubernetes-list-map-keys")
    if keys:
        entries = [tuple(entry.get(key) for key in keys) for entry in value]
        if len(entries) != len(set(entries)):
            yield f"{path}: has two entries with the same {keys}"
    if isinstance(value, dict):
        for name, child in value.items():
            inner = schema.get("properties", {}).get(name) or schema.get("additionalProperties")
            if isinstance(inner, dict):
                yield from _broken_rules(inner, child, f"{path}.{name}")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, child in enumerate(value):
            yield from _broken_rules(schema["items"], child, f"{path}[{index}]")


def _holds(rule: str, value: Any) -> bool:
    import celpy

    environment = celpy.Environment()
    program = environment.program(environment.compile(rule))
    return bool(program.evaluate({"self": celpy.json_to_cel(value)}))
