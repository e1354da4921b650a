"""The common parts of the APIs of all frameworks: queries of the world and the build, and forms of collectives."""

from __future__ import annotations

import functools
import inspect
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Callable, Protocol, TypeVar

from cloudtrain.distributed.world import World


class WorldAccessors:
    """The position of this process in the job. Each framework exports the bound methods.

    Every method raises NotInitialized before ``init``.

    Args:
        current: Returns the world that ``init`` joined. A module-level function, so that the methods can be pickled.
    """

    def __init__(self, current: Callable[[], World]) -> None:
        self._current = current

    def rank(self) -> int:
        """The global rank of this process, counted from 0."""
        return self._current().rank

    def size(self) -> int:
        """The number of ranks in the job."""
        return self._current().size

    def local_rank(self) -> int:
        """The rank of this process on its host, counted from 0."""
        return self._current().local_rank

    def local_size(self) -> int:
        """The number of ranks on this host."""
        return self._current().local_size

    def cross_rank(self) -> int:
        """The index of this host, counted from 0."""
        return self._current().cross_rank

    def cross_size(self) -> int:
        """The number of hosts."""
        return self._current().cross_size

    def is_homogeneous(self) -> bool:
        """Whether every host has the same number of ranks."""
        world = self._current()
        return world.local_size * world.cross_size == world.size


class BuildQueries:
    """Horovod's queries about its build, answered for the installed packages.

    The base class answers for collectives in host memory. A framework overrides what differs.
    """

    def mpi_built(self) -> bool:
        """Whether mpi4py is installed, which ``init(backend="mpi")`` needs."""
        return find_spec("mpi4py") is not None

    def mpi_enabled(self) -> bool:
        """Whether data may be sent over MPI."""
        return self.mpi_built()

    def mpi_threads_supported(self) -> bool:
        """Same as `mpi_enabled`: ``init`` rejects an MPI library without thread support."""
        return self.mpi_enabled()

    def gloo_built(self) -> bool:
        """Whether PyTorch is installed, which ``init(backend="gloo")`` needs."""
        return find_spec("torch") is not None

    def gloo_enabled(self) -> bool:
        """Whether data may be sent over Gloo."""
        return self.gloo_built()

    def nccl_built(self) -> int:
        """NCCL's version as a number; 0 without NCCL."""
        return 0

    def ddl_built(self) -> bool:
        """IBM's DDL: never."""
        return False

    def ccl_built(self) -> bool:
        """Intel's oneCCL: never."""
        return False

    def cuda_built(self) -> bool:
        """Whether the framework was built with CUDA."""
        return False

    def rocm_built(self) -> bool:
        """Whether the framework was built with ROCm."""
        return False


if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    P = ParamSpec("P")

T = TypeVar("T")
Result = TypeVar("Result", covariant=True)


class Waits(Protocol[Result]):
    """The handle of a collective."""

    def wait(self) -> Result: ...


def synchronous(start: Callable[P, Waits[T]]) -> Callable[P, T]:
    """The function that calls ``start``, whose name contains ``_async``, and waits for the result."""

    @functools.wraps(start)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        return start(*args, **kwargs).wait()

    call.__name__ = call.__qualname__ = start.__name__.replace("_async", "")
    call.__doc__ = f"`{start.__name__}`, and the wait for its result.\n\n{start.__doc__}"
    _sign(call, start)
    return call


def single(several: Callable[..., Any], argument: str = "tensor") -> Callable[..., Any]:
    """The function of one tensor that calls ``several``, a function of a list, and returns its only result.

    Args:
        argument: the name of the parameter for the tensor.
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
    """Decorate a function that passes the arguments of ``template`` on, with their names and defaults."""

    def decorate(function: Callable[..., T]) -> Callable[P, T]:
        _sign(function, template)
        return function

    return decorate


def _sign(function: Any, template: Callable[..., Any]) -> None:
    """Give ``function`` the parameters of ``template``, for `help` and editors."""
    function.__signature__ = inspect.signature(template).replace(return_annotation=inspect.Signature.empty)
