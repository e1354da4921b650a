"""`cloudtrain._dataclass`: like `dataclasses.dataclass`, but generated at the first use."""

from __future__ import annotations

import copy
import dataclasses
import os
import sys
import threading
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict, field, fields, is_dataclass, replace
from inspect import signature
from types import FrameType
from typing import Any

import pytest

from cloudtrain._dataclass import dataclass
from cloudtrain.platforms import JobDescription

OURS = ("_make_methods", "_init", "_repr", "_guards", "_comparison")
"""The functions of `cloudtrain._dataclass` that make the methods."""


def classes() -> tuple[type, type]:
    """Two that nothing has used."""

    @dataclass(frozen=True)
    class Base:
        name: str
        """Its name."""

    @dataclass(frozen=True)
    class Derived(Base):
        size: int = 3
        items: list[int] = field(default_factory=list)

    return Base, Derived


def test_nothing_is_generated_before_the_first_use() -> None:
    _, derived = classes()
    assert "__eq__" not in vars(derived)
    assert derived("a") == derived("a")
    assert "__eq__" in vars(derived)


def test_a_generated_class_is_a_dataclass() -> None:
    base, derived = classes()
    assert is_dataclass(derived) and [each.name for each in fields(derived)] == ["name", "size", "items"]
    one = derived("a", items=[1])
    assert repr(one).endswith("Derived(name='a', size=3, items=[1])")
    assert asdict(replace(one, size=4)) == {"name": "a", "size": 4, "items": [1]}
    assert one != base("a") and derived("a").items is not derived("a").items
    with pytest.raises(FrozenInstanceError):
        one.name = "b"
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
        derived()


def test_its_signature_has_the_fields() -> None:
    """Before anything has used it: help(), editors and Sphinx look at it."""
    base, derived = classes()

    class Own(derived):  # type: ignore[misc, valid-type]
        def __init__(self, first: str) -> None:
            super().__init__(first)

    assert str(signature(derived)) == "(name: 'str', size: 'int' = 3, items: 'list[int]' = <factory>) -> None"
    assert str(signature(base)) == "(name: 'str') -> None"
    assert str(signature(Own)) == "(first: 'str') -> 'None'"
    assert str(signature(JobDescription)).startswith("(name: 'str', ")


def test_a_generated_class_behaves_as_one_of_the_standard_library() -> None:
    class Plain:
        shown: int
        hidden: list[int] = field(default_factory=list, repr=False, compare=False)
        later: int = field(init=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "later", self.shown + 1)

    body = {name: value for name, value in vars(Plain).items() if name not in ("__dict__", "__weakref__")}
    for options in ({}, {"frozen": True}, {"eq": False}, {"frozen": True, "eq": False}):
        ours = dataclass(**options)(type("Case", (), dict(body)))
        theirs = dataclasses.dataclass(**options)(type("Case", (), dict(body)))
        assert str(signature(ours)) == str(signature(theirs))
        assert repr(ours(1)) == repr(theirs(1))
        assert (ours(1) == ours(1, [2])) == (theirs(1) == theirs(1, [2]))
        assert ours.__match_args__ == theirs.__match_args__
        assert (ours.__hash__ is None) == (theirs.__hash__ is None)
        for name in ("shown", "other"):
            found = []
            for one in (ours(1), theirs(1)):
                try:
                    setattr(one, name, 2)
                except FrozenInstanceError as error:
                    found.append(str(error))
            assert len({*found}) == (1 if "frozen" in options else 0) and len(found) in (0, 2)
    assert len({classes()[0]("a"): 0}) == 1


def test_methods_of_the_class_itself_are_kept() -> None:
    @dataclass(frozen=True)
    class Case:
        name: str

        def __repr__(self) -> str:
            return f"<{self.name}>"

        def __eq__(self, other: object) -> bool:
            return True

    @dataclass
    class Hashed:
        name: str

        def __hash__(self) -> int:
            return 1

    assert repr(Case("a")) == "<a>" and Case("a") == Case("b")
    assert hash(Case("a")) == hash(Case("a")) and hash(Hashed("a")) == 1


def test_a_field_of_any_name() -> None:
    @dataclass
    class Named:
        own: int
        cls: int

    assert fields(Named)[0].name == "own"
    assert Named(own=1, cls=2) == Named(1, 2)


def test_a_class_whose_first_instance_is_a_copy() -> None:
    _, derived = classes()
    one = derived.__new__(derived)
    one.__dict__.update(name="a", size=1, items=[])
    assert copy.copy(one) == derived("a", 1)


def test_a_subclass_that_is_none() -> None:
    base, _ = classes()

    class Own(base):  # type: ignore[misc, valid-type]
        def __init__(self, first: str, second: str) -> None:
            super().__init__(first + second)

    assert Own("a", "b").name == "ab"


def test_threads_that_create_the_first_instance_together() -> None:
    for _ in range(50):
        _, derived = classes()
        start, found = threading.Barrier(4), list[object]()

        def create(derived: type = derived, start: threading.Barrier = start, found: list = found) -> None:
            start.wait()
            found.append(derived("a"))

        threads = [threading.Thread(target=create) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [derived("a")] * 4


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # Python 3.12 and newer: it has threads
def test_a_fork_while_a_thread_generates() -> None:
    for _ in range(20):
        _, derived = classes()
        thread = threading.Thread(target=derived, args=("a",))
        thread.start()
        child = os.fork()
        if not child:
            os._exit(derived("a").size)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        thread.join()


def generate_with(act: Callable[[type], object], *, step: int) -> None:
    """Generate a class again and again, and call ``act`` at the first line that makes it, a later one, and so on."""
    left = 0
    derived: Any = None

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal left
        if event == "line" and (
            frame.f_code.co_filename == dataclasses.__file__ or frame.f_code.co_name in OURS
        ):
            left -= 1
            if not left:
                sys.settrace(before)
                act(derived)
        return trace

    before = sys.gettrace()
    for count in range(1, 10_000, step):
        _, derived = classes()
        left = count
        sys.settrace(trace)
        try:
            derived("a")
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        check(derived)
        if left > 0:
            assert count > 100
            return
    pytest.fail("it never ends")


def check(derived: Any) -> None:
    one = derived("a")
    assert (one, one.size, one.items) == (derived("a"), 3, [])
    assert [each.name for each in fields(derived)] == ["name", "size", "items"]
    with pytest.raises(FrozenInstanceError):
        one.size = 4


def test_an_interrupt_while_it_is_generated_spoils_nothing() -> None:
    """Wherever Ctrl-C arrives, the next use generates the whole class."""

    def interrupt(_derived: type) -> None:
        raise KeyboardInterrupt

    generate_with(interrupt, step=7)


def test_a_signal_handler_uses_it_while_it_is_generated() -> None:
    """Wherever the signal arrives, both the handler and what it interrupts have the whole class."""
    generate_with(check, step=3)
