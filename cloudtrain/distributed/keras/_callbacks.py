"""What the callbacks do, for every Keras: its own ``Callback`` stands behind these in the order of resolution."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Callable

import numpy as np
import tensorflow as tf

import cloudtrain.distributed.numpy as hvd
from cloudtrain import environment
from cloudtrain.distributed.errors import InvalidArgument
from cloudtrain.distributed.keras._optimizer import Distributed, variables_of
from cloudtrain.distributed.tensorflow.variables import broadcast_variables

Logs = dict[str, Any]


class BroadcastGlobalVariablesCallback:
    """Overwrites weights and the optimizer's variables with the root's, after the first batch.

    Before it the optimizer may have no variables yet. Seeds of dropout and the like stay each rank's own.

    Args:
        root_rank: whose variables all ranks get.
        device: has no meaning here: variables are broadcast where they are.
        local_variables: one or several that stay each rank's own.
    """

    model: Any

    def __init__(self, root_rank: int = 0, device: str = "", local_variables: Any = None) -> None:
        super().__init__()
        self.root_rank = root_rank
        self.broadcast_done = False
        one = local_variables is not None and not isinstance(local_variables, (list, tuple, set, frozenset))
        several: Iterable[Any] = [local_variables] if one else local_variables or []
        self._local: dict[int, Any] = {}
        for variable in several:
            if not hasattr(variable, "assign"):
                raise InvalidArgument("All local variables must be of tf.Variable type.")
            self.register_local_var(variable)

    def register_local_var(self, var: Any) -> None:
        """``var`` stays this rank's own."""
        self._local[id(var)] = var

    def on_train_begin(self, logs: Logs | None = None) -> None:
        """Raises InvalidArgument for an optimizer whose ranks would wait for each other in vain."""
        inner = getattr(self.model.optimizer, "inner_optimizer", None)
        if isinstance(inner, Distributed) and not isinstance(self.model.optimizer, Distributed):
            raise InvalidArgument(
                "the model's LossScaleOptimizer has a DistributedOptimizer inside: ranks would skip different steps",
                hint="compile(optimizer=hvd.DistributedOptimizer(LossScaleOptimizer(optimizer)))",
            )

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if self.broadcast_done:
            return
        own = [*self.model.weights, *variables_of(self.model.optimizer)]
        broadcast_variables([one for one in own if id(one) not in self._local], self.root_rank)
        self.broadcast_done = True


class MetricAverageCallback:
    """Averages an epoch's metrics over the ranks, for all callbacks that come after it in the list.

    Args:
        device: has no meaning here: metrics are numbers in host memory.
    """

    def __init__(self, device: str = "") -> None:
        super().__init__()

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs:
            names = sorted(logs)
            averaged = hvd.allreduce(
                np.array([float(logs[name]) for name in names]), name="MetricAverageCallback"
            )
            logs.update(zip(names, averaged.tolist()))


class LearningRateScheduleCallback:
    """Sets the learning rate to ``initial_lr * multiplier(epoch)`` from ``start_epoch`` on, before ``end_epoch``.

    Args:
        multiplier: a function of the epoch; a number ``m`` stands for ``m ** (epoch - start_epoch)``.
        end_epoch: None for all epochs to come.
        staircase: once an epoch; else at each batch, with the epoch as ``epoch + batch / steps_per_epoch``.
        momentum_correction: scale the optimizer's velocity by what the learning rate changes by, as it holds the
            learning rate of former steps (Goyal et al. 2017, https://arxiv.org/abs/1706.02677, remark 2).
        steps_per_epoch: None for what ``fit`` is told or finds.

    Raises:
        InvalidArgument: ``initial_lr`` is None; or, in ``fit``, the steps of an epoch are needed and not known.
    """

    model: Any
    params: dict[str, Any]

    def __init__(
        self,
        initial_lr: float,
        multiplier: float | Callable[[float], float],
        start_epoch: int = 0,
        end_epoch: int | None = None,
        staircase: bool = True,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
    ) -> None:
        super().__init__()
        if initial_lr is None:
            raise InvalidArgument("Parameter `initial_lr` is required")
        self.initial_lr = initial_lr
        self.start_epoch, self.end_epoch = start_epoch, end_epoch
        self.staircase = staircase
        self.momentum_correction = momentum_correction
        self.steps_per_epoch = steps_per_epoch
        self.current_epoch = 0
        self.multiplier: Callable[[float], float]
        if callable(multiplier):
            self.multiplier = multiplier
        else:
            factor = multiplier
            self.multiplier = lambda epoch: factor ** (epoch - start_epoch)

    def on_train_begin(self, logs: Logs | None = None) -> None:
        if not self.staircase and not self.steps_per_epoch:
            self.steps_per_epoch = self.params.get("steps")
            if not self.steps_per_epoch:
                raise InvalidArgument(
                    f"{type(self).__name__}: the number of steps of an epoch is not known",
                    hint="Give it steps_per_epoch, or give it to fit.",
                )

    def on_epoch_begin(self, epoch: int, logs: Logs | None = None) -> None:
        self.current_epoch = epoch

    def on_train_batch_begin(self, batch: int, logs: Logs | None = None) -> None:
        epoch = self.current_epoch
        if epoch < self.start_epoch or (self.end_epoch is not None and epoch >= self.end_epoch):
            return
        if not self.staircase:
            self._set(epoch + batch / self.steps_per_epoch)  # type: ignore[operator]
        elif batch == 0:
            self._set(epoch)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if logs is not None:
            logs["lr"] = _learning_rate(self.model.optimizer)

    def _set(self, epoch: float) -> None:
        optimizer = self.model.optimizer
        old, new = _learning_rate(optimizer), self.initial_lr * self.multiplier(epoch)
        try:
            optimizer.learning_rate = new
        except TypeError as error:
            raise InvalidArgument(
                f"{type(self).__name__}: the optimizer has a schedule of its own for the learning rate",
                hint="Give the optimizer a number, or leave the callback out.",
            ) from error
        if self.momentum_correction and old:
            for velocity in _velocities(optimizer, self.model):
                velocity.assign(velocity * tf.cast(new / old, velocity.dtype))


class LearningRateWarmupCallback(LearningRateScheduleCallback):
    """Raises the learning rate from ``initial_lr / size`` to ``initial_lr`` in the first epochs, batch by batch.

    With ``e`` epochs done, a fraction too, it is ``initial_lr / size * (e * (size - 1) / warmup_epochs + 1)`` (Goyal
    et al. 2017, https://arxiv.org/abs/1706.02677, section 2.2). Arguments as of `LearningRateScheduleCallback`.

    Args:
        initial_lr: that to end with: of one rank, times the number of ranks.
        verbose: 1 prints a line on rank 0 when it is done.
    """

    def __init__(
        self,
        initial_lr: float,
        warmup_epochs: float = 5,
        momentum_correction: bool = True,
        steps_per_epoch: int | None = None,
        verbose: int = 0,
    ) -> None:
        def multiplier(epoch: float) -> float:
            # the batch counts as done, so that the last one of the last epoch has the whole learning rate
            done = min(epoch + 1.0 / (self.steps_per_epoch or 1), warmup_epochs)
            return 1.0 / hvd.size() * (done * (hvd.size() - 1) / warmup_epochs + 1)

        end = math.ceil(warmup_epochs)
        super().__init__(initial_lr, multiplier, 0, end, False, momentum_correction, steps_per_epoch)
        self.verbose = verbose

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        super().on_epoch_end(epoch, logs)
        if self.end_epoch is not None and epoch == self.end_epoch - 1 and self.verbose and hvd.rank() == 0:
            rate = _learning_rate(self.model.optimizer)
            print(f"\nEpoch {epoch + 1}: finished gradual learning rate warmup to {rate:g}.")  # noqa: T201


class BestModelCheckpoint:
    """The best model so far, written on rank 0; after MetricAverageCallback in the list, the best of all ranks.

    Args:
        filepath: ends with ``.keras``, or with ``.weights.h5`` for weights only; None for ``best.keras`` in the job's
            model folder.

    The others are those of ``keras.callbacks.ModelCheckpoint``.
    """

    def __init__(
        self,
        monitor: str = "val_loss",
        verbose: int = 0,
        save_weights_only: bool = False,
        mode: str = "auto",
        save_freq: Any = "epoch",
        filepath: str | None = None,
    ) -> None:
        name = "best.weights.h5" if save_weights_only else "best.keras"
        path = filepath or str(environment.model_dir() / name)
        base: Any = super()
        base.__init__(path, monitor, verbose, True, save_weights_only, mode, save_freq)

    def on_train_batch_end(self, batch: int, logs: Logs | None = None) -> None:
        if hvd.rank() == 0:
            base: Any = super()
            base.on_train_batch_end(batch, logs)

    def on_epoch_end(self, epoch: int, logs: Logs | None = None) -> None:
        if hvd.rank() == 0:
            base: Any = super()
            base.on_epoch_end(epoch, logs)


def with_base(mixin: type[Any], base: type[Any], module: str) -> Any:
    """``mixin`` as a callback of the Keras that ``base`` is of."""
    return type(mixin.__name__, (mixin, base), {"__doc__": mixin.__doc__, "__module__": module})


def _learning_rate(optimizer: Any) -> float:
    return float(tf.convert_to_tensor(optimizer.learning_rate))


def _velocities(optimizer: Any, model: Any) -> list[Any]:
    """The variables in which an optimizer with momentum keeps what is left of former steps."""
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    if not hasattr(optimizer, "momentum"):
        return []
    if "momentum" in getattr(optimizer, "get_slot_names", list)():  # of the legacy optimizers
        return [optimizer.get_slot(weight, "momentum") for weight in model.trainable_weights]
    found = getattr(optimizer, "momentums", None) or getattr(optimizer, "_momentums", None) or []
    return [velocity for velocity in found if velocity is not None]
