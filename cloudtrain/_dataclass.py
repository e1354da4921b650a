"""Dataclasses whose methods are made when they are first used, so that importing a module is fast.

`dataclasses.dataclass` compiles each of five or six methods by itself, which takes half a millisecond a class, and a
process uses a fourth of the classes that it imports. Here, only ``__init__`` is compiled; the others are closures.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from _thread import RLock
    from functools import partial
    from operator import attrgetter
    from reprlib import recursive_repr

    _LOCK = RLock()  # two threads may create the first instance at the same time
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)

    class _Fields:
        """The ``__dataclass_fields__`` of an incomplete class: reading them completes it."""

        def __init__(self, complete):
            self._complete = complete

        def __get__(self, _instance, _owner):
            return self._complete()

    class _Signature:
        """The ``__signature__`` of a class: without it, `inspect.signature` would show that of ``__new__``."""

        def __get__(self, _instance, owner):
            from inspect import signature

            owner.__dataclass_fields__  # noqa: B018 - completes the class
            found = signature(owner.__init__)
            return found.replace(parameters=[*found.parameters.values()][1:])

    class _Factory:
        """The default of a parameter whose field has a ``default_factory``."""

        def __repr__(self):
            return "<factory>"

    _FACTORY = _Factory()

    def _reset(cls, before):
        for name in {*vars(cls)} - {*before}:
            delattr(cls, name)
        for name, value in before.items():
            if vars(cls).get(name) is not value:
                setattr(cls, name, value)

    def _make_methods(cls, *, frozen=False, eq=True):
        from dataclasses import dataclass as describe, fields

        own = {name for name, value in vars(cls).items() if value is not None}
        cls.__doc__ = cls.__doc__ or cls.__name__  # otherwise, the next line would write a signature into it
        describe(init=False, repr=False, eq=False)(cls)
        found = fields(cls)
        methods = [_init(cls, found, frozen), _repr(tuple(each.name for each in found if each.repr))]
        if frozen:
            methods += _guards(cls, frozenset(each.name for each in found))
        if eq:
            equal, hashed = _comparison([each.name for each in found if each.compare])
            methods += [equal, hashed] if frozen else [equal]
            if not frozen and "__hash__" not in own:
                cls.__hash__ = None
        for method in methods:
            if method.__name__ not in own:
                method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
                setattr(cls, method.__name__, method)

    def _init(cls, fields, frozen):
        from dataclasses import MISSING

        names = {"_factory": _FACTORY}
        # not object.__setattr__, which takes three times as long: a list of jobs creates thousands of instances
        parameters, lines = ["self"], ["_values = self.__dict__" if frozen else "pass"]
        for number, each in enumerate(fields):
            # a name that no parameter has: parameters are named after the fields
            value, given = each.name, f"_{number}"
            if each.default_factory is not MISSING:
                names[given] = each.default_factory
                value = f"{given}()"
                if each.init:
                    value += f" if {each.name} is _factory else {each.name}"
                parameter = f"{each.name}=_factory"
            elif each.default is not MISSING:
                names[given] = each.default
                parameter = f"{each.name}={given}"
            else:
                parameter = each.name
            if each.init:
                parameters.append(parameter)
            elif each.default_factory is MISSING:
                continue
            lines.append(f"_values[{each.name!r}] = {value}" if frozen else f"self.{each.name} = {value}")
        if hasattr(cls, "__post_init__"):
            lines.append("self.__post_init__()")
        body = "\n  ".join(lines)
        exec(f"def __init__({', '.join(parameters)}):\n  {body}", names)
        init = names["__init__"]
        init.__module__ = cls.__module__
        init.__annotations__ = {each.name: each.type for each in fields if each.init} | {"return": None}
        return init

    def _repr(shown):
        @recursive_repr()
        def __repr__(self):
            values = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
            return f"{type(self).__qualname__}({values})"

        return __repr__

    def _guards(cls, names):
        def refuse(verb, name):
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot {verb} field {name!r}")

        def __setattr__(self, name, value):
            if type(self) is cls or name in names:
                refuse("assign to", name)
            super(cls, self).__setattr__(name, value)

        def __delattr__(self, name):
            if type(self) is cls or name in names:
                refuse("delete", name)
            super(cls, self).__delattr__(name)

        return [__setattr__, __delattr__]

    def _comparison(names):
        if len(names) > 1:
            values = attrgetter(*names)
        else:

            def values(one):
                return tuple(getattr(one, name) for name in names)

        def __eq__(self, other):
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            return hash(values(self))

        return __eq__, __hash__

    def dataclass(cls=None, **options):
        """`dataclasses.dataclass`, applied to the class when it is first instantiated or its fields are first read.

        The only options are ``frozen`` and ``eq``. Not for classes that define ``__new__`` or ``__init__``, have
        a `dataclasses.InitVar`, or derive from dataclasses that are not made here.
        """
        if cls is None:
            return partial(dataclass, **options)
        is_complete, before, tries = False, None, 0

        def complete():
            nonlocal is_complete, before
            with _LOCK:
                if not is_complete and before:
                    _generate()  # a signal handler interrupted this thread while it was generating
                elif not is_complete:
                    before = dict(vars(cls))
                    try:
                        _generate()
                    except BaseException:  # such as Ctrl-C: methods that remain would break the next try
                        _reset(cls, before)
                        raise
                    finally:
                        before = None
                    is_complete = True
            return cls.__dict__["__dataclass_fields__"]

        def _generate():
            """Generate all methods; repeat it if a signal handler has generated them meanwhile."""
            nonlocal tries
            while True:
                tries += 1
                this = tries
                try:
                    _reset(cls, before)
                    _make_methods(cls, **options)
                except Exception:
                    if this == tries:
                        raise
                if this == tries:
                    return

        def new(own, /, *_args, **_kwargs):
            if not is_complete:
                complete()
            return object.__new__(own)

        cls.__new__ = new
        cls.__dataclass_fields__ = _Fields(complete)
        cls.__signature__ = _Signature()
        return cls


__all__ = ["dataclass"]
