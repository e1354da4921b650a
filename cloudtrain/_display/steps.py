"""The progress of a job as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloudtrain.platforms import JobDescription


def step_facts(description: JobDescription) -> str:
    """``step 420 of 1,000 (42 %), 1.9 steps/s, about 5 min 5 s left``; empty if no step is known."""
    step, total, rate = description.step, description.total_steps, description.step_rate
    if step is None:
        return ""
    share = description.progress
    parts = [f"step {step:,}" if share is None else f"step {step:,} of {total:,} ({share:.0%})"]
    if description.stalled_seconds is not None:
        parts.append(f"no step for {span(description.stalled_seconds)}")
    elif rate:
        parts.append(f"{rate:.3g} steps/s" if rate >= 1 else f"{span(1 / rate)} a step")
    if description.remaining_seconds is not None and step != total:
        parts.append(f"about {span(description.remaining_seconds)} left")
    return ", ".join(parts)


def brief_progress(description: JobDescription) -> str:
    """The progress for a column of a table: ``42% 5 min 5 s left``."""
    share, remaining = description.progress, description.remaining_seconds
    if description.stalled_seconds is not None:
        left = f"no step for {span(description.stalled_seconds)}"
    else:
        left = f"{span(remaining)} left" if remaining else ""
    done = (
        f"{share:.0%}"
        if share is not None
        else ""
        if description.step is None
        else f"step {description.step:,}"
    )
    return f"{done} {left}".strip()


def span(seconds: float) -> str:
    """A duration in at most two units: ``1.2 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"
