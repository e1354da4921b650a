"""Text in the YAML of a dry run is the same text for readers of YAML 1.1, of 1.2, and for Go's."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from hypothesis import given, settings, strategies as st

from cloudtrain.platforms.kubernetes.manifests import dump

AMBIGUOUS = [
    *("1e-3", "1E3", ".5e1", "1.", "+1", "-0", "0x1F", "0b11", "0o17", "0777", "1_000", "190:20:30", "1:30"),
    *("y", "Y", "n", "N", "yes", "No", "on", "OFF", "true", "False", "null", "Null", "~", "", " ", "nil"),
    *(
        "2001-01-01",
        "2001-12-14t21:59:43.10-05:00",
        ".inf",
        "-.INF",
        "+.inf",
        ".NaN",
        "inf",
        "nan",
        "Infinity",
    ),
    *("=", "<<", "-", "- a", "? a", "a: b", "a #b", "#", "&a", "*a", "!a", "%a", "@a", "`a", "|", ">", "{a}"),
    *(
        "[a",
        "'",
        '"',
        "\\",
        "---",
        "...",
        "a\n",
        "\na",
        " a\nb",
        "a\n b\n",
        "a \nb",
        "a\tb",
        "\ta\nb",
        "a\r\nb",
    ),
    *(
        "a\u0085b",
        "a\u2028b\nc",
        "\u00a0",
        "\ufeffa",
        "\U0001f600",
        "é",
        "0123e45",
        "12e34567",
        "$(HOME)",
        "1,5",
    ),
]

# The scalars of Go's reader, of YAML 1.1's types and of 1.2's core schema that PyYAML takes for text.
_WORDS = "y|Y|n|N|yes|Yes|YES|no|No|NO|on|On|ON|off|Off|OFF|true|True|TRUE|false|False|FALSE|null|Null|NULL|~"
_NUMBERS = (
    r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?|0o[0-7]+|[-+]?0[xb][0-9a-fA-F_]+"
    r"|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_OTHERS = re.compile(rf"({_WORDS}|{_NUMBERS}|\d\d\d\d-\d\d?-\d\d?.*|=|<<|)\Z")


class StrictLoader(yaml.SafeLoader):
    """Refuses a plain scalar that any reader may take for something else than text."""

    def construct_text(self, node: yaml.ScalarNode) -> str:
        assert node.style or not _OTHERS.match(node.value), node.value
        return str(node.value)


StrictLoader.add_constructor("tag:yaml.org,2002:str", StrictLoader.construct_text)


def check(value: Any) -> None:
    text = dump({"value": value})
    assert yaml.load(text, StrictLoader) == {"value": value}


@pytest.mark.parametrize("text", AMBIGUOUS)
def test_ambiguous_text_stays_text_as_a_value_a_key_and_an_item(text: str) -> None:
    check({text: text, "list": [text, {"name": text, "value": text}]})


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        st.from_regex(_OTHERS),
        st.text(st.characters(exclude_categories=("Cs",))),
        st.text("yYnN01.eE-+:_xo ~\n\t#'\"\u0085\u2028"),
    )
)
def test_any_text_stays_text(text: str) -> None:
    check({text: [text, {"deep": {text: text}}]})


def test_other_scalars_stay_as_they_are() -> None:
    check({"numbers": [1, 0.001, 1e-05, 1e22], "others": [True, False, None, {}, []]})
