"""The past of the jobs of a user, or of a team: parameters, metrics, outcomes, durations, costs.

The records at the job's side are the truth, and `query` reads those of jobs that it does not have yet. The history is
the only copy for jobs whose records are gone. From then on, a job that has ended is read from the database of the index
(`cloudtrain.index`) alone. A database that cannot be used gives a warning, and blocks nothing.
"""

from __future__ import annotations

from cloudtrain._lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cloudtrain.history.past_job import MetricRange as MetricRange, PastJob as PastJob
    from cloudtrain.history.queries import query as query

__getattr__, __dir__, __all__ = lazy(
    __name__,
    {
        "cloudtrain.history.past_job": "MetricRange PastJob",
        "cloudtrain.history.queries": "query",
    },
)
