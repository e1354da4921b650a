"""``tf.distribute`` on two hosts of this machine, by the distributions that describe the cluster to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cloudtrain import Estimator

MIRRORED = """
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
number = strategy.cluster_resolver.task_id


@tf.function
def step():
    def add():
        return tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, tf.constant(10.0**number))

    return strategy.run(add)


print("sum", float(strategy.experimental_local_results(step())[0]), strategy.num_replicas_in_sync, flush=True)
"""

SERVED = """
import tensorflow as tf

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type == "worker":
    tf.distribute.Server(resolver.cluster_spec(), job_name="worker", task_index=resolver.task_id).join()
strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    total = tf.Variable(0.0)


@tf.function
def add():
    total.assign_add(1.0)


for _ in range(10):
    coordinator.schedule(add)
coordinator.join()
print("total", float(total), total.device, flush=True)
"""


@pytest.mark.soak  # in CI, test_local_tf_config runs these distributions without TensorFlow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("distribution", "script", "lines"),
    [
        (
            "multi_worker_mirrored_strategy",
            MIRRORED,
            ["[rank 0] sum 11.0 2", "[rank 1] sum 11.0 2"],
        ),
        (
            "parameter_server",
            SERVED,
            ["[rank 0] total 10.0 /job:ps/replica:0/task:0/device:CPU:0"],
        ),
    ],
    ids=["mirrored", "served"],
)
def test_two_hosts_train_as_one_cluster(
    warm_tensorflow: str, tmp_path: Path, distribution: str, script: str, lines: list[str]
) -> None:
    (tmp_path / "train.py").write_text(script)
    estimator = Estimator(
        str(tmp_path / "train.py"),
        instance_count=2,
        distribution={distribution: {}},
        environment={"TF_CPP_MIN_LOG_LEVEL": "3"},
        platform_options={"python": warm_tensorflow},
    )
    job = estimator.fit(wait=False)
    job.wait()
    assert sorted(line for line in job.logs().splitlines() if "] sum" in line or "] total" in line) == lines
