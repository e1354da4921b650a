"""The ways to run a job: one for each kind of main object."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cloudtrain.errors import InvalidJob
from cloudtrain.platforms.kubernetes.options import KubernetesOptions
from cloudtrain.platforms.kubernetes.render import job, jobset, mpijob, trainjob
from cloudtrain.platforms.kubernetes.render.parts import HostNames, Parts
from cloudtrain.spec import TrainingJob


def _no_settings(_: TrainingJob, __: KubernetesOptions) -> Mapping[str, Any]:
    return {}


@dataclass(frozen=True)
class Rendering:
    """One way to run a job."""

    host_names: Callable[[TrainingJob], HostNames]
    main_object: Callable[[Parts], dict[str, Any]]
    helpers: Callable[[Parts], list[dict[str, Any]]]
    """The objects that no controller makes for a main object of this kind, and that other kinds do not need."""
    settings: Callable[[TrainingJob, KubernetesOptions], Mapping[str, Any]] = _no_settings
    """The runtime's settings that differ."""
    options: tuple[str, ...] = ()
    """The options that other renderings do not have."""


RENDERINGS: Mapping[str, Rendering] = {
    "job": Rendering(job.host_names, job.render_job, job.helpers),
    "jobset": Rendering(jobset.host_names, jobset.render_jobset, jobset.helpers),
    "trainjob": Rendering(
        trainjob.host_names,
        trainjob.render_trainjob,
        trainjob.helpers,
        trainjob.settings,
        trainjob.OPTIONS,
    ),
    "mpijob": Rendering(
        mpijob.host_names, mpijob.render_mpijob, mpijob.helpers, mpijob.settings, mpijob.OPTIONS
    ),
}


def rendering_of(options: KubernetesOptions) -> tuple[str, Rendering]:
    """The name and the way to run a job with ``options``. Raises InvalidJob for options of another rendering."""
    chosen = "job" if options.rendering == "auto" else options.rendering
    defaults = KubernetesOptions()
    for name, rendering in RENDERINGS.items():
        for option in rendering.options:
            if name != chosen and getattr(options, option) != getattr(defaults, option):
                raise InvalidJob(
                    f"platform_options.{option}: has no effect on a {chosen}, which this job is rendered as",
                    hint=f"Set platform_options.rendering: {name}, or remove the option.",
                )
    return chosen, RENDERINGS[chosen]
