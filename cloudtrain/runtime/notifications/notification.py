"""A notification: one event of a job, in the forms in which it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cloudtrain.contract import FailureReport
from cloudtrain.contract.documents import Fields
from cloudtrain.contract.text import escape_line, escape_text

LONGEST = 1500
"""The most characters of a text from the job, such as a summary."""
_TITLES = {
    "failed": "{job} failed",
    "completed": "{job} completed",
    "stopped": "{job} was stopped",
    "preempted": "{job} was preempted",
    "hanging": "{job} hangs",
    "cost": "{job} costs more than expected",
    "test": "{job}: a test of its notifications",
}


@dataclass(frozen=True)
class Notification:
    """One event of a job. Its texts have no control characters, because the job may have written them."""

    key: str
    """A key that does not change between tries, so that receivers can ignore repeated notifications."""
    event: str
    """One of `rules.EVENTS`, or ``test``."""
    job: str
    platform: str
    attempt: int
    """The number of earlier attempts."""
    time: float
    """The time of the event, in seconds since the epoch."""
    summary: str = ""
    """One line: which rank failed first and why, or another reason."""
    hint: str = ""
    rank: int | None = None
    host: str | None = None
    failure_class: str | None = None
    exit_code: int | None = None
    details: tuple[str, ...] = ()
    """Further lines, such as how long the job took."""

    @classmethod
    def of(
        cls,
        key: str,
        event: str,
        job: str,
        platform: str,
        attempt: int,
        time: float,
        *,
        summary: str = "",
        failure: FailureReport | None = None,
        details: tuple[str, ...] = (),
    ) -> Notification:
        """A notification with escaped texts. With a ``failure``, it has the summary and the hint of that report."""
        found: dict[str, Any] = {}
        if failure:
            summary = failure.summary()
            found = {
                "hint": escape_text(failure.hint)[:LONGEST],
                "rank": failure.rank,
                "host": failure.host and escape_line(failure.host)[:LONGEST],
                "failure_class": str(failure.failure_class),
                "exit_code": failure.exit_code,
            }
        return cls(
            key,
            event,
            job,
            platform,
            attempt,
            time,
            escape_line(summary)[:LONGEST],
            details=tuple(escape_line(line)[:LONGEST] for line in details),
            **found,
        )

    @property
    def title(self) -> str:
        return _TITLES.get(self.event, "{job}: {event}").format(job=f"job {self.job}", event=self.event)

    @property
    def commands(self) -> tuple[str, ...]:
        """Commands that show more about the job."""
        logs = f"cloudtrain logs {self.job}" + (f" --rank {self.rank}" if self.rank is not None else "")
        return (f"cloudtrain describe {self.job}", logs)

    @property
    def lines(self) -> list[str]:
        """All lines of the text except the title."""
        kind = f"  [{self.failure_class}]" if self.failure_class else ""
        found = [f"{self.summary}{kind}".strip(), self.hint, *self.details]
        return [*filter(None, found), "", *self.commands]

    @property
    def text(self) -> str:
        return "\n".join([self.title, *self.lines])

    @property
    def slack(self) -> dict[str, str]:
        """The body for an incoming webhook of Slack. Texts of the job cannot add mentions, links or formatting."""
        body = "\n".join(self.lines).replace("`", "'")
        return {"text": f"*{_escape_slack(self.title)}*\n```\n{_escape_slack(body)}\n```"}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def payload(self) -> bytes:
        """The body of a webhook."""
        body = {**self.to_dict(), "title": self.title, "text": self.text, "commands": self.commands}
        return json.dumps(body).encode()

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Notification:
        """The inverse of `to_dict`. Raises ValueError."""
        given = Fields(record)
        return cls(
            key=given.text("key"),
            event=given.text("event"),
            job=given.text("job"),
            platform=given.text("platform"),
            attempt=given.integer("attempt"),
            time=given.time("time"),
            summary=given.text("summary", ""),
            hint=given.text("hint", ""),
            rank=given.integer("rank", None),
            host=given.text("host", None),
            failure_class=given.text("failure_class", None),
            exit_code=given.integer("exit_code", None, least=-(2**32)),
            details=given.texts("details", ()),
        )


def _escape_slack(text: str) -> str:
    """Escape ``text`` for Slack, whose control sequences all begin with ``<`` or ``&``."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
