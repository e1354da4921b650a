"""Finds out why the ranks of a host failed, from their exits and from the state of its machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cloudtrain.runtime.diagnose.machine_faults import gpu_faults_of, memory_kill_count, with_hints

if TYPE_CHECKING:
    from cloudtrain.contract import FailureReport
    from cloudtrain.runtime.diagnose.rank_exit import RankExit
    from cloudtrain.runtime.host_config import HostConfig
    from cloudtrain.runtime.launchers.launch import Launch
    from cloudtrain.runtime.sampling.sampler import Sampler


class RankDiagnosis:
    """The reports about the ranks of one launch, which is about to start.

    Args:
        python: the interpreter of the ranks.
        gpus: the number of GPUs of this host.
    """

    def __init__(self, config: HostConfig, launch: Launch, sampler: Sampler, python: str, gpus: int) -> None:
        self._config, self._launch, self._sampler = config, launch, sampler
        self._python, self._gpus = python, gpus
        self._memory_kills = memory_kill_count()
        self._launched = time.monotonic()

    @property
    def memory_kills(self) -> int:
        """The number of processes of this host that the kernel has killed for lack of memory since the launch."""
        return memory_kill_count() - self._memory_kills

    def of_rank(self, rank_exit: RankExit) -> FailureReport:
        """The report of a rank that has failed."""
        from cloudtrain.runtime.diagnose.hints.table import JobFacts
        from cloudtrain.runtime.diagnose.ranks import diagnose

        host, kills = self._config.host.current, self.memory_kills
        report = self._launch.report_without_ranks(rank_exit, self._python, host)
        sampled = self._sampler.gpu_faults()
        faults = gpu_faults_of(sampled, self._launched) if self._gpus or sampled else ""
        facts = JobFacts(code=self._config.paths.code, channels=self._config.channels.keys())
        report = report or diagnose(rank_exit, host, memory_kills=kills, gpu_faults=faults, facts=facts)
        report = with_hints(report, self._config.paths.base, self._config.settings.no_opt_ml)
        return self._sampler.explain(report)

    def of_agent(self) -> FailureReport | None:
        """The report of an agent that has failed although no rank has failed."""
        return self._launch.agent_report(self._config.host.current, self.memory_kills)
