"""Fixtures for tests on real Slurm clusters: a plugin, for the folders of other tests too.

A cluster starts when the first test asks for it, and serves all tests of this worker that want its configuration. The
fixtures ``slurm``, ``slurm3`` and so on lead Slurm's commands to it by SLURM_CONF; after each test all its jobs are
cancelled, and all its daemons and nodes are brought back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from slurm_cluster import Configuration, SlurmCluster, with_preemption
from slurm_programs import SlurmMissing

SlurmOf = Callable[[Configuration], SlurmCluster]


@pytest.fixture(scope="session")
def slurm_clusters() -> Iterator[SlurmOf]:
    """``slurm_clusters(configuration)``: the running cluster of this worker with that configuration."""
    running: dict[Configuration, SlurmCluster] = {}
    with ExitStack() as stack:

        def cluster(configuration: Configuration) -> SlurmCluster:
            if configuration not in running:
                try:
                    running[configuration] = stack.enter_context(SlurmCluster(configuration))
                except SlurmMissing as error:
                    if os.environ.get("CLOUDTRAIN_REQUIRE_ALL") == "1":
                        raise
                    pytest.skip(str(error))
            return running[configuration]

        yield cluster


@pytest.fixture
def slurm_of(slurm_clusters: SlurmOf, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmOf]:
    """``slurm_of(configuration)``: such a cluster, to which Slurm's commands lead now."""
    used: list[SlurmCluster] = []
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH", "SQUEUE"))]:
        monkeypatch.delenv(name)

    def use(configuration: Configuration) -> SlurmCluster:
        used.append(slurm_clusters(configuration))
        monkeypatch.setenv("SLURM_CONF", str(used[-1].conf))
        return used[-1]

    yield use
    for cluster in used:
        cluster.reset()


@pytest.fixture
def slurm(slurm_of: SlurmOf) -> SlurmCluster:
    """Two nodes with two GPUs each, no accounting."""
    return slurm_of(Configuration())


@pytest.fixture
def slurm3(slurm_of: SlurmOf) -> SlurmCluster:
    """Three nodes."""
    return slurm_of(Configuration(nodes=3))


@pytest.fixture
def slurm_accounting(slurm_of: SlurmOf) -> SlurmCluster:
    """Two nodes; ``sacct`` works."""
    return slurm_of(Configuration(accounting=True))


@pytest.fixture
def slurm_cancels(slurm_of: SlurmOf) -> SlurmCluster:
    """Two nodes; a job in the partition ``urgent`` cancels those in ``main``, after 10 s of grace."""
    return slurm_of(with_preemption("CANCEL", grace=10))


@pytest.fixture
def slurm_requeues(slurm_of: SlurmOf) -> SlurmCluster:
    """Two nodes; a job in the partition ``urgent`` requeues those in ``main``, after 10 s of grace."""
    return slurm_of(with_preemption("REQUEUE", grace=10))


@pytest.fixture(scope="module")
def slurm_module(slurm_clusters: SlurmOf) -> Iterator[SlurmCluster]:
    """The cluster of ``slurm`` for a module that looks at the results of a cached job."""
    cluster = slurm_clusters(Configuration())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(cluster.conf))
        yield cluster
    cluster.reset()
