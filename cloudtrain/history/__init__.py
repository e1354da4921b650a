"""The past of the jobs of a user, or of a team: parameters, metrics, outcomes, durations, costs.

The records kept with a job are authoritative, and `query` reads them for jobs that are not in the history yet. After
that, a job that has ended is read only from the database of the index (`cloudtrain.index`), which is the only copy once
the records are gone. A database that cannot be used causes a warning, and blocks nothing.
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
