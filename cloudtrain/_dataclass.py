"""Dataclasses whose methods are generated when they are first used, so that importing a module is fast.

Generating them takes half a millisecond for each class, and a process uses a fourth of the classes that it imports.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    from _thread import RLock
    from functools import partial

    _LOCK = RLock()  # two threads may create the first instance at the same time
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_LOCK.acquire, after_in_parent=_LOCK.release, after_in_child=_LOCK.release)

    class _Fields:
        """The ``__dataclass_fields__`` of a class that is not complete: looking at them completes it."""

        def __init__(self, complete):
            self._complete = complete

        def __get__(self, _instance, _owner):
            return self._complete()

    def _reset(cls, before):
        for name in {*vars(cls)} - {*before}:
            delattr(cls, name)
        for name, value in before.items():
            if vars(cls).get(name) is not value:
                setattr(cls, name, value)

    def dataclass(cls=None, **options):
        """`dataclasses.dataclass`, which is applied to the class before its first instance or look at its fields.

        Not for classes that define ``__new__`` or ``__init__``.
        """
        if cls is None:
            return partial(dataclass, **options)
        is_complete, before, tries = False, None, 0

        def complete():
            nonlocal is_complete, before
            with _LOCK:
                if not is_complete and before:
                    _generate()  # a signal's handler interrupts this thread, which is generating
                elif not is_complete:
                    before = dict(vars(cls))
                    try:
                        _generate()
                    except BaseException:  # such as Ctrl-C: a part of the methods would spoil the next try
                        _reset(cls, before)
                        raise
                    finally:
                        before = None
                    is_complete = True
            return cls.__dict__["__dataclass_fields__"]

        def _generate():
            """Generate all methods, once more if a signal's handler has done the same in the middle."""
            nonlocal tries
            from dataclasses import dataclass as generate

            while True:
                tries += 1
                this = tries
                try:
                    _reset(cls, before)
                    generate(**options)(cls)
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
        return cls


__all__ = ["dataclass"]
