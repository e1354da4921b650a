"""The forms of a collective that follow from one of them, written once for all frameworks."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Callable, Protocol, TypeVar

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")
Result = TypeVar("Result", covariant=True)


class Waits(Protocol[Result]):
    """The handle of a collective."""

    def wait(self) -> Result: ...


def synchronous(start: Callable[P, Waits[T]]) -> Callable[P, T]:
    """The function that calls ``start``, whose name has ``_async`` in it, and waits for the result."""

    @functools.wraps(start)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return start(*args, **kwargs).wait()

    call.__name__ = call.__qualname__ = start.__name__.replace("_async", "")
    call.__doc__ = f"`{start.__name__}`, and the wait for its result.\n\n{start.__doc__}"
    _sign(call, start)
    return call


def single(several: Callable[..., Any], argument: str = "tensor") -> Callable[..., Any]:
    """The function of one tensor that calls ``several``, a function of a list, and has the only result.

    Args:
        argument: the name of the tensor.
    """

    @functools.wraps(several)
    def call(*args: Any, **kwargs: Any) -> Any:
        if args:
            first, *rest = args
        elif argument in kwargs:
            first, rest = kwargs.pop(argument), []
        else:
            raise TypeError(f"{call.__name__}() needs its argument {argument!r}")
        results = several([first], *rest, **kwargs)
        return results[0] if isinstance(results, list) else results.then(lambda found: found[0])

    call.__name__ = call.__qualname__ = several.__name__.replace("grouped_", "")
    call.__doc__ = f"`{several.__name__}` of one {argument}.\n\n{several.__doc__}"
    signature = inspect.signature(several)
    listed, *others = signature.parameters.values()
    one = listed.replace(name=argument, annotation=inspect.Parameter.empty)
    call.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[one, *others], return_annotation=inspect.Signature.empty
    )
    return call


def same_arguments(template: Callable[P, Any]) -> Callable[[Callable[..., T]], Callable[P, T]]:
    """Decorate a function that hands the arguments of ``template`` on, with their names and defaults."""

    def decorate(function: Callable[..., T]) -> Callable[P, T]:
        _sign(function, template)
        return function

    return decorate


def _sign(function: Any, template: Callable[..., Any]) -> None:
    """Give ``function`` the parameters of ``template``, for `help` and editors."""
    function.__signature__ = inspect.signature(template).replace(return_annotation=inspect.Signature.empty)
