"""Exchanges inside layers are negotiated until the ranks have agreed on their order, and never started out of it."""

from __future__ import annotations

from hypothesis import given, strategies as st

from cloudtrain.distributed.torch._state import MOST, AgreedOrder


class Layer:
    """Counted by identity, as modules are."""


def asked(order: AgreedOrder, exchanges: list[str]) -> int:
    """Pass the exchanges, and count those that are negotiated."""
    count = 0
    for exchange in exchanges:
        count += not order.expects(exchange)
        order.passed(exchange)
    return count


def test_every_step_after_the_first_is_free() -> None:
    order, step = AgreedOrder(), ["f1", "f2", "f3", "b3", "b2", "b1"]
    assert [asked(order, step) for _ in range(4)] == [6, 1, 0, 0]


def test_a_new_exchange_is_negotiated_and_the_one_it_replaces_from_then_on() -> None:
    order = AgreedOrder()
    asked(order, ["f1", "b1"] * 3)
    assert asked(order, ["f1", "f2", "b1"]) == 2
    assert asked(order, ["f1", "b1"]) == 1, "f1 was followed by two different ones"
    assert asked(order, ["f1", "f2", "b1"]) == 1


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.sampled_from("abcd"), st.sampled_from("abcd"))
def test_of_two_different_exchanges_at_most_one_starts_without_negotiation(
    history: list[str], one: str, other: str
) -> None:
    first, second = AgreedOrder(), AgreedOrder()
    assert asked(first, history) == asked(second, history)
    assert one == other or not (first.expects(one) and second.expects(other))


def test_restart_forgets_the_order_and_the_numbers() -> None:
    order, layers = AgreedOrder(), [Layer(), Layer()]
    assert [order.number(layer) for layer in (*layers, layers[0])] == [1, 2, 1]
    asked(order, ["f1", "b1"] * 2)
    order.restart(joins=1)
    assert order.joins == 1
    assert order.number(layers[1]) == 1
    assert asked(order, ["f1", "b1"] * 2) == 3


def test_layers_that_are_used_once_do_not_fill_the_memory() -> None:
    order = AgreedOrder()
    assert asked(order, [f"f{number}" for number in range(3 * MOST)]) == 3 * MOST
    assert len(order._next) <= MOST + 1
