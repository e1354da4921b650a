"""Fit a line with JAX on several processes. Each has its own rows; JAX adds up their gradients.

cloudtrain submit train.yaml
"""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import NamedSharding, PartitionSpec

jax.distributed.initialize(  # it takes JAX_COORDINATOR_ADDRESS itself
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
TRUE = np.array([1.0, -2.0, 3.0], np.float32)
ROWS = 64  # for each process


def loss(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((x @ weights - y) ** 2)


@jax.jit
def step(weights: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
    return weights - 0.1 * jax.grad(loss)(weights, x, y)


mesh = jax.make_mesh((jax.device_count(),), ("data",))
by_rows = NamedSharding(mesh, PartitionSpec("data"))
own = np.random.default_rng(jax.process_index()).normal(size=(ROWS, 3)).astype(np.float32)
x = jax.make_array_from_process_local_data(by_rows, own)  # all rows: an array over all processes
y = jax.make_array_from_process_local_data(by_rows, own @ TRUE)
weights = jax.device_put(jnp.zeros(3), NamedSharding(mesh, PartitionSpec()))
for _ in range(100):
    weights = step(weights, x, y)

sum_of_ranks = multihost_utils.process_allgather(np.float32(jax.process_index() + 1)).sum()
fitted = np.asarray(weights)
print(
    f"process {jax.process_index()} of {jax.process_count()}: {x.shape[0]} rows, sum {sum_of_ranks:.0f}, "
    f"weights {fitted.round(3).tolist()}",
    flush=True,
)
if jax.process_index() == 0:
    np.save(os.path.join(os.environ["SM_MODEL_DIR"], "weights.npy"), fitted)
jax.distributed.shutdown()
