"""A Job's policies for its pods: failures that count, and enough successes."""

from __future__ import annotations

from typing import Any

from kube_objects import has_condition

Object = dict[str, Any]


def failure_action(job: Object, pod: Object) -> tuple[str, str]:
    """The action for a failed pod, ``Count`` by default, and the sentence about the rule."""
    for number, rule in enumerate((job["spec"].get("podFailurePolicy") or {}).get("rules") or ()):
        for pattern in rule.get("onPodConditions") or ():
            if has_condition(pod, pattern["type"]) == (pattern.get("status", "True") == "True"):
                return rule["action"], f"Pod {_name(pod)} has condition {pattern['type']} matching " + _rule(
                    rule, number
                )
        wanted = rule.get("onExitCodes")
        if wanted and (found := _exit_code(pod, wanted)):
            container, code = found
            said = f"Container {container} for pod {_name(pod)} failed with exit code {code} matching"
            return rule["action"], f"{said} {_rule(rule, number)}"
    return "Count", ""


def _name(pod: Object) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def _rule(rule: Object, number: int) -> str:
    return f"{rule['action']} rule at index {number}"


def _exit_code(pod: Object, wanted: Object) -> tuple[str, int] | None:
    for one in pod["status"].get("containerStatuses") or ():
        ended = one["state"].get("terminated")
        if not ended or not ended["exitCode"] or wanted.get("containerName", one["name"]) != one["name"]:
            continue
        if (ended["exitCode"] in wanted["values"]) == (wanted["operator"] == "In"):
            return one["name"], ended["exitCode"]
    return None


def is_enough(job: Object, succeeded: set[int]) -> bool:
    """Whether the Job's success policy is met."""
    for rule in (job["spec"].get("successPolicy") or {}).get("rules") or ():
        wanted = parse_indexes(rule["succeededIndexes"]) if "succeededIndexes" in rule else None
        found = succeeded if wanted is None else succeeded & wanted
        if len(found) >= rule.get("succeededCount", len(wanted or ()) or 1):
            return True
    return False


def parse_indexes(text: str) -> set[int]:
    """
    >>> sorted(parse_indexes("0,2-4"))
    [0, 2, 3, 4]
    """
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: set[int]) -> str:
    """
    >>> format_indexes({0, 2, 3, 4})
    '0,2-4'
    """
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][-1] == index - 1:
            parts[-1].append(index)
        else:
            parts.append([index])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
