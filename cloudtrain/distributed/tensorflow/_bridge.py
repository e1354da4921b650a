"""The bridge between tensors and the collectives on NumPy arrays.

On the CPU, an eager tensor and its NumPy array share memory. In a graph, a collective is a single stateful operation.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Callable, TypeVar, cast

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain.distributed._gradients import Compressor, casting
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.numpy._backend import Array
from cloudtrain.distributed.tensorflow._errors import remembered_errors, tensorflow_errors

Function = TypeVar("Function", bound=Callable[..., Any])
Output = tuple[Any, Any]
"""Type and static shape of a result. Unknown dimensions are None."""

HOST_MEMORY = "CLOUDTRAIN_TENSORFLOW_HOST_MEMORY"
"""Set to 1 to allow copies of GPU tensors through host memory."""


def call_numpy(
    function: Callable[[list[Array]], Sequence[Array]], tensors: Sequence[Any], outputs: Sequence[Output]
) -> list[Any]:
    """Call ``function`` on ``tensors`` as read-only arrays, and return its results as tensors.

    Raises:
        CollectiveError, InvalidArgument: In a graph, when it runs.
        InvalidArgument: The tensors are on a GPU, or XLA compiles the graph.
    """
    check_not_compiled()
    if hvd.size() > 1:
        check_in_host_memory(tensors)
    if tf.executing_eagerly():
        results = function([np.asarray(tensor) for tensor in tensors])
        return [tf.convert_to_tensor(result, dtype) for result, (dtype, _) in zip(results, outputs)]

    def run(*arrays: Array) -> list[Array]:
        return [np.asarray(result) for result in function([np.asarray(array) for array in arrays])]

    results = waiting_function(run, tensors, [dtype for dtype, _ in outputs])
    for result, (_, shape) in zip(results, outputs):
        result.set_shape(shape)
    return results


def no_autograph(function: Function) -> Function:
    """Exclude ``function`` from AutoGraph, which would otherwise convert the whole library."""
    return cast(Function, tf.autograph.experimental.do_not_convert(function))


def operation(function: Function) -> Function:
    """Decorate an operation on tensors: no AutoGraph, and TensorFlow's error classes."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with tensorflow_errors():
            return function(*args, **kwargs)

    return cast(Function, no_autograph(call))


def operation_name(name: str | None, kind: str, tensors: Sequence[Any]) -> str | None:
    """Return the name by which ranks match an operation; None matches by program order.

    A TensorFlow 1 graph has no program order. There the name derives from the tensor, as in Horovod, made unique if
    several operations use the same tensor.
    """
    if name is None and in_graph_1():
        unique: str = tf.compat.v1.get_default_graph().unique_name(f"{kind} {tensors[0].name}")
        return unique
    return name


def in_graph_1() -> bool:
    """Whether operations are added to a TensorFlow 1 graph, rather than to that of a ``tf.function``."""
    return not tf.executing_eagerly() and not tf.compat.v1.get_default_graph().building_function


def any_rows(tensor: Any) -> Any:
    """Return the static shape of ``tensor`` with an unknown number of rows. A scalar counts as one row."""
    shape = tensor.shape
    if shape.rank is None:
        return shape
    return tf.TensorShape([None, *shape.as_list()[1:]])


def checked_device(device: str) -> Any:
    """Return ``tf.device(device)``. Raises InvalidArgument if the process has no such device."""
    if "GPU" in device.upper() and not tf.config.list_logical_devices("GPU"):
        raise InvalidArgument(
            f"device {device!r}: TensorFlow sees no GPU in this process", hint="Omit the device."
        )
    return tf.device(device or None)


def placed(tensors: Iterable[Any], device: str) -> list[Any]:
    """Copy ``tensors`` to an explicitly chosen device. Call it inside ``with checked_device(device)``."""
    return [tf.identity(tensor) for tensor in tensors] if device else list(tensors)


def host_memory_allowed() -> bool:
    """Whether the user allows copies of GPU tensors through host memory."""
    return os.environ.get(HOST_MEMORY) == "1"


def in_host_memory(tensors: Sequence[Any]) -> bool:
    """Whether all tensors are on the CPU. In a graph this is known only for explicitly placed tensors."""
    return all("CPU" in (tensor.device or "").upper() for tensor in tensors)


def check_in_host_memory(tensors: Sequence[Any]) -> None:
    """Raises InvalidArgument for tensors that are, or in a graph may be, on a GPU."""
    if host_memory_allowed() or not tf.config.list_logical_devices("GPU") or in_host_memory(tensors):
        return
    raise InvalidArgument(
        "this operation would copy GPU tensors through host memory",
        hint=f"Set {HOST_MEMORY}=1 to allow it, or pass CPU tensors.",
    )


def device_for_slices(slices: Sequence[Any], device: str) -> str:
    """Return the device where IndexedSlices are gathered: ``device``, or host memory for those on a GPU.

    NCCL gathers equal numbers of rows only.
    """
    given = [part for one in slices for part in (one.values, one.indices)]
    on_host = "CPU" in device.upper() or (not device and in_host_memory(given))
    if on_host or hvd.size() == 1 or host_memory_allowed() or not tf.config.list_logical_devices("GPU"):
        return device
    _warn_of_host_memory()
    return "/cpu:0"


@functools.cache
def _warn_of_host_memory() -> None:
    if hvd.rank() == 0:
        warnings.warn(
            "sparse gradients (IndexedSlices), as of embeddings, are copied from the GPU and gathered in host memory; "
            "sparse_as_dense=True reduces them between the GPUs, as dense tensors",
            stacklevel=1,
        )


def _is_floating(tensor: Any) -> bool:
    return bool(tensor.dtype.is_floating)


class Compression:
    """The built-in compressors. ``compression`` also accepts any other subclass of `Compressor`."""

    none = Compressor
    fp16 = casting(__name__, "fp16", tf.float16, _is_floating, tf.cast)
    bf16 = casting(__name__, "bf16", tf.bfloat16, _is_floating, tf.cast)


def waiting_function(
    function: Callable[..., Sequence[Array]], tensors: Sequence[Any], types: Sequence[Any]
) -> list[Any]:
    """Add ``function``, of arrays, to the graph. Return its results, of ``types`` and unknown shapes.

    TensorFlow runs the operations of a ``tf.function`` one after the other, in program order, which is the same on all
    ranks. A session runs those of a TensorFlow 1 graph in any order and in few threads, where those that one rank waits
    for might never start on another. So there each operation waits in its own thread.
    """

    def run(*arrays: Array) -> list[Array]:
        with remembered_errors():
            return list(function(*arrays))

    if _has_program_order():
        return list(tf.numpy_function(run, list(tensors), list(types)))
    # Uses a dataset, because nothing else in a graph can have its own thread pool. All datasets of the same
    # types share one graph function, which finds the Python function by its number: a session processes every function
    # of its graph at each new operation.
    number = next(_numbers)
    _by_number[number] = run
    graph = _outermost(tf.compat.v1.get_default_graph())
    graph._cloudtrain_functions = [*getattr(graph, "_cloudtrain_functions", ()), run]
    element = _element(tuple(tensor.dtype for tensor in tensors), tuple(types))
    shape = {"output_types": list(types), "output_shapes": [tf.TensorShape(None)] * len(types)}
    components = [tf.constant(number, tf.int64), *tensors]
    mapped = tf.raw_ops.MapDataset(
        input_dataset=tf.raw_ops.TensorDataset(
            components=components, output_shapes=[part.shape for part in components]
        ),
        other_arguments=[],
        f=element,
        **shape,
    )
    threaded = tf.raw_ops.PrivateThreadPoolDataset(input_dataset=mapped, num_threads=1, **shape)
    return list(tf.raw_ops.DatasetToSingleElement(dataset=threaded, **shape))


_numbers = itertools.count()
_by_number: weakref.WeakValueDictionary[int, Callable[..., list[Array]]] = weakref.WeakValueDictionary()
"""The functions of TensorFlow 1 graphs, which live as long as their graph."""


def _call_by_number(number: Array, *arrays: Array) -> list[Array]:
    return _by_number[int(number)](*arrays)


@functools.cache
def _element(given: tuple[Any, ...], types: tuple[Any, ...]) -> Any:
    """Return the graph function that calls a function of `_by_number` on tensors of the types ``given``."""
    specs = [tf.TensorSpec(None, dtype) for dtype in (tf.int64, *given)]
    call = tf.function(lambda *parts: tuple(tf.numpy_function(_call_by_number, parts, list(types))), specs)
    with tf.Graph().as_default():
        return call.get_concrete_function()


def _outermost(graph: Any) -> Any:
    while (outer := getattr(graph, "outer_graph", None)) is not None:
        graph = outer
    return graph


def check_not_compiled() -> None:
    """Raises InvalidArgument if XLA will compile the current graph: it can neither wait nor call Python."""
    from tensorflow.python.ops import control_flow_util

    if tf.executing_eagerly() or not control_flow_util.GraphOrParentsInXlaContext(
        tf.compat.v1.get_default_graph()
    ):
        return
    raise InvalidArgument(
        "a collective cannot run in a function that XLA compiles (jit_compile=True)",
        hint="Leave out jit_compile=True. For a Keras model that was loaded: model.jit_compile = False.",
    )


def _has_program_order() -> bool:
    """Whether the outermost graph is a ``tf.function``'s."""
    with tf.init_scope():
        return bool(tf.executing_eagerly())


AUTO = "auto"
"""The default of Keras 3: XLA on GPUs."""


def choose_without_xla(keras: Any) -> None:
    """Make the default of ``compile(jit_compile=...)`` mean no XLA for all models, while there are several ranks.

    For all models, because a custom ``train_step`` may use a tape, or other optimizers than the model's. tf_keras never
    chooses XLA.
    """
    # Patches the class that defines it, because Keras does not call an override in a subclass when it loads a model.
    owner = next(base for base in keras.Model.__mro__ if "compile" in vars(base))
    original = owner.compile
    parameters = list(inspect.signature(original).parameters.values())
    position = next((n for n, one in enumerate(parameters) if one.default == AUTO), None)
    if position is None or hasattr(original, "__wrapped_by_cloudtrain__"):
        return
    name = parameters[position].name

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        chosen = kwargs.get(name, AUTO) == AUTO and len(args) < position
        applies = keras.backend.backend() == "tensorflow" and hvd.is_initialized() and hvd.size() > 1
        if chosen and applies:
            kwargs[name] = False
        return original(self, *args, **kwargs)

    compile.__wrapped_by_cloudtrain__ = True  # type: ignore[attr-defined]
    owner.compile = compile
