"""A state survives the round trip through JSON."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict, namedtuple
from typing import Any

import numpy as np
import pytest
import torch
from checkpoint_trees import same
from hypothesis import given, strategies as st

from cloudtrain.checkpoint.format import tree
from cloudtrain.errors import CheckpointError

KEYS = st.one_of(st.text(), st.integers(), st.floats(allow_nan=False), st.booleans(), st.none())
SCALARS = st.one_of(KEYS, st.floats(), st.binary())
TREES = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        st.lists(children),
        st.lists(children).map(tuple),
        st.dictionaries(st.text() | st.sampled_from(["$tensor", "$dict", "$"]), children),
        st.dictionaries(KEYS, children),
    ),
)


def through_json(state: Any) -> Any:
    document, leaves = tree.encode(state)
    tensors = {name: leaf.value for name, leaf in leaves.items()}
    return tree.decode(json.loads(json.dumps(document)), tensors)


@given(TREES)
def test_round_trip(state: Any) -> None:
    assert same(through_json(state), state)


def test_optimizer_state_keeps_its_integer_keys() -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(3)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    assert list(state["state"]) == [0, 1]
    assert same(through_json(state), state)


@pytest.mark.parametrize(
    ("value", "restored"),
    [
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        (defaultdict(list, a=[1]), {"a": [1]}),
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
    ],
)
def test_subtypes_of_plain_types(value: Any, restored: Any) -> None:
    assert same(through_json(value), restored)


def contains_itself() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"model": {"x": object()}}, "state['model']['x'] cannot be saved: it is a builtins.object"),
        ([1, (2, {3})], "state[1][1] cannot be saved: it is a builtins.set"),
        ({"a": namedtuple("Point", "x y")(1, 2)}, "state['a'] cannot be saved: it is a "),
        ({(1, 2): 3}, "state[(1, 2)] cannot be saved: it is under a key of type tuple"),
        ({"t": torch.ones(2).to_sparse()}, "state['t'] cannot be saved: it is a sparse"),
        (
            {"t": torch.empty(2, device="meta")},
            "state['t'] cannot be saved: it is a sparse, quantized or meta",
        ),
        ({"a": np.array(["x"])}, "state['a'] cannot be saved: it is an array of dtype <U1"),
        ({"a": np.array([object()])}, "state['a'] cannot be saved: it is an array of dtype object"),
        ({"a": np.ma.masked_array([1])}, "state['a'] cannot be saved: it is a numpy.ma"),
        ({"a": np.longdouble(1)}, "state['a'] cannot be saved: it is a numpy.longdouble"),
        (contains_itself(), "state[0][0][0] cannot be saved: it is nested deeper than 100 levels"),
    ],
)
def test_an_unsupported_value_is_located(state: Any, message: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        tree.encode(state)
    assert caught.value.message.startswith(message)
    assert "dicts, lists and tuples" in caught.value.hint


def test_names_of_tensors_are_their_paths_and_never_collide() -> None:
    one, two, three = torch.tensor(1), torch.tensor(2), torch.tensor(3)
    state = {"a/b": one, "a": {"b": two}, "__metadata__": three}
    _, leaves = tree.encode(state)
    assert list(leaves) == ["a/b", "a/b#2", "__metadata__#2"]
    assert same(through_json(state), state)


def test_shared_tensors_are_stored_once() -> None:
    weight = torch.arange(6.0).reshape(2, 3)
    state = {"embedding": weight, "head": weight, "transposed": weight.T, "again": weight.view(2, 3)}
    _, leaves = tree.encode(state)
    assert list(leaves) == ["embedding", "transposed"]
    assert same(through_json(state), state)


@pytest.mark.parametrize(
    "document",
    [{}, [], None, {"tree": {"$tensor": "gone"}}, {"tree": {"$later": 1}}, {"tree": {"$bytes": "%"}}],
)
def test_an_invalid_document_is_reported_as_damaged(document: Any) -> None:
    with pytest.raises(CheckpointError, match="its tree is not readable"):
        tree.decode(document, {})
