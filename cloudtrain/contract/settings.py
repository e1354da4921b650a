"""Settings that cloudtrain's platforms pass to cloudtrain's runtime, beyond SageMaker's contract.

Each is an environment variable ``CLOUDTRAIN_<NAME>``. All are optional; none is a secret.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.documents import Fields, parse_json
from cloudtrain.contract.source import SourceLimits

PREFIX = "CLOUDTRAIN_"
HIDDEN_VARIABLES = "CLOUDTRAIN_HIDDEN_VARIABLES"
"""The variable of `Settings.hidden_variables`."""

BOTO3_FOLDER = "CLOUDTRAIN_BOTO3_FOLDER"
"""The variable of `Settings.boto3_folder`."""


NOTIFY_ON_HANG, STOP_ON_HANG, RESTART_ON_HANG = ("notice", "stop", "restart")


@dataclass(frozen=True)
class Settings:
    """The runtime's settings. `from_environ` is the inverse of `to_environ`."""

    job_name: str = ""
    run_id: str = ""
    """The identity of the job for trackers, the same in all attempts; empty: the job's name."""
    output_uri: str = ""
    """Where the runtime uploads the model and the outputs; empty if the platform uploads them."""
    checkpoint_uri: str = ""
    """Where checkpoints are stored; ``checkpoints/`` is synced with it."""
    source_sha256: str = ""
    """The expected SHA-256 of the source archive; empty: not checked."""
    max_source_size: int = SourceLimits.size
    """The most bytes that the unpacked source may have."""
    max_source_files: int = SourceLimits.files
    """The most files, folders and links that it may have."""
    source_channel: str = ""
    """The channel in which the platform delivers the source archive; hidden from the script."""
    git_commit: str = ""
    """The commit of the source; ends with ``-dirty`` if files differed from it."""
    compress_output: bool = True
    channels: tuple[tuple[str, str], ...] = ()
    """Pairs of channel and URI for the runtime to fetch; empty if the platform fetches them."""
    rendezvous: str = ""
    """How hosts find the leader: ``host:port``, or the path of a file that all hosts can read."""
    master_addr: str = ""
    """The leader's address, for the ranks; empty: the leader's host name."""
    master_port: int = 0
    """The port of rank 0 on the leader; 0: a free port."""
    hosts_on_machine: int = 1
    """The number of the job's hosts that share this machine and its processors."""
    boto3_folder: str = ""
    """The folder with a boto3 for processes whose interpreter lacks it."""
    python: str = ""
    """The interpreter that runs the script; empty: the one that runs the runtime."""
    bundled_runtime: str = ""
    """The folder that holds the unpacked bundled runtime, for a ``python`` that does not have cloudtrain installed."""
    requirements_cache: str = ""
    """The folder that caches environments with requirements; empty: install into the script's interpreter."""
    no_opt_ml: str = ""
    """Why this host's base folder is not ``/opt/ml``, on a platform where it could be; empty if it is."""
    srun: tuple[tuple[str, str], ...] = ()
    """How srun starts the ranks of the distribution ``mpi``, as pairs of name and value: ``mpi``, the type for srun's
    option of that name, ``hosts``, the folder of the hosts' folders, and ``runtime``, the path of the bundled runtime.
    Empty: mpirun starts them."""
    hidden_variables: str = ""
    """The names of the job's ``secrets``, with commas between them: output does not show their values."""
    metric_definitions: tuple[tuple[str, str], ...] = ()
    """Pairs of name and regular expression, matched against the output of the ranks."""
    event_lines: bool = False
    """Whether the events of this host are also lines of its output, for a platform that can read nothing else while the
    job runs: ``[cloudtrain:event] {...}``, at most one a second for each metric."""
    opaque_event_lines: bool = False
    """Whether these lines are in base64, for a platform that searches the output for metrics."""
    timeline: bool = False
    """Whether ranks record timelines, in ``output/data/timeline/``."""
    samples: bool = True
    """Whether the runtime samples its host and the GPUs: see `cloudtrain.runtime.sampling`."""
    stop_grace: float = 120.0
    """Seconds between SIGTERM and SIGKILL when a job is stopped."""
    max_run: float = 0.0
    """Seconds that all attempts of the job may run in total, where the platform cannot count them; 0: the runtime sets
    no limit."""
    cost_terms: str = ""
    """The `cloudtrain.spec.CostTerms` of the job as JSON, for a platform that keeps its price and cap nowhere else."""
    max_preemptions: int = -1
    """How often in a row the job may restart after hosts were lost without saving a checkpoint, on a platform that
    would always restart it; -1: always."""
    hang_after: float = 300.0
    """Seconds in which no rank shows a sign of life, after which the job is considered hung; 0: never. See
    `cloudtrain.runtime.diagnose.silence`."""
    on_hang: str = "notice"
    """The reaction: `NOTIFY_ON_HANG`, `STOP_ON_HANG` or `RESTART_ON_HANG`."""
    hang_timeout: float = 0.0
    """Seconds without a heartbeat, after the first one, after which a rank is considered hung; 0: never."""
    join_timeout: float = 600.0
    """Seconds within which all hosts must find one another."""
    host_timeout: float = 30.0
    """Seconds without a message after which another host is considered lost."""
    dropped_variables: str = ""
    """The names of variables for another launcher, with commas between them, which are removed for ranks."""
    notify: str = ""
    """The rules of the job's field ``notify`` as JSON, for a platform where the leader sends its notifications."""
    restart_program: str = ""
    """A Python program that restarts this host instead of an exit with ``restart_exit_code``, for a platform that would
    count this exit as a failure of the script."""
    retries_in_place: int = -1
    """How often the script may fail where hosts are restarted in place; after that, a restarted host ends as before.
    -1: the platform counts."""
    attempt: int = 0
    """0 for the first start, 1 for the first retry, ..."""
    ran: float = 0.0
    """Seconds that the job has run before this attempt, on a monotonic clock."""
    restarts_here: bool = False
    """Whether another attempt on the same hosts, with their memory intact, follows this one if a rank is killed."""
    restart_exit_code: int = 0
    """The exit code of a host that ends through no fault of the script, so that its platform restarts all hosts without
    counting a failure; 0: the host ends with the code of the job."""
    termination_message: str = ""
    """The file to which this host writes its `Ending`, such as /dev/termination-log; empty: none."""
    spare: bool = False
    """Whether this is a spare host, which prepares itself, and waits to take the place of another."""
    spare_hosts: int = 0
    """The number of hosts, the last ones, that wait for the place of another, where the hosts themselves assign places:
    see `cloudtrain.runtime.roll_call`."""
    no_ranks: bool = False
    """Whether the first host only leads, and the ranks run on the others."""
    forward_output: bool = False
    """Whether the other hosts send the lines of their output to the leader, which prints them too."""

    def output_key(self, kind: str) -> str:
        """The key of the outputs of a kind, ``model`` or ``output``, below ``output_uri``."""
        return f"{kind}.tar.gz" if self.compress_output else kind

    @classmethod
    def variables(cls) -> list[str]:
        """The names of all variables."""
        return [PREFIX + field.name.upper() for field in fields(cls)]

    def to_environ(self) -> dict[str, str]:
        """The settings that differ from their defaults."""
        environ = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                environ[PREFIX + field.name.upper()] = value if isinstance(value, str) else json.dumps(value)
        return environ

    def to_dict(self) -> dict[str, Any]:
        """The settings that differ from their defaults, as data for JSON."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }

    @classmethod
    def from_dict(cls, values: object) -> Settings:
        """The inverse of `to_dict`, also after a round trip through JSON. Ignores settings of a newer version.

        Raises ValueError, which names the setting, if a value does not have the type of its default.
        """
        given = Fields(values, "settings")
        known = {name: default for name, default in _defaults().items() if name in given}
        return cls(**{name: _checked(given, name, default) for name, default in known.items()})

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> Settings:
        """Raises ValueError, which names the variable, if a value does not have the right type."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            name = PREFIX + field.name.upper()
            if name in environ:
                values[field.name] = _parse(name, environ[name], field.default)
        return cls(**values)


@functools.cache
def _defaults() -> dict[str, Any]:
    return {field.name: field.default for field in fields(Settings)}


def _parse(name: str, text: str, default: Any) -> Any:
    if isinstance(default, str):
        return text
    try:
        return _checked(Fields({name: parse_json(text)}), name, default)
    except ValueError:
        raise ValueError(
            f"{name}={text[:100]!r} does not have the type of its default, {default!r}"
        ) from None


def _checked(given: Fields, name: str, default: Any) -> Any:
    """The value of a setting, which has the type of its default."""
    if isinstance(default, str):
        return given.text(name, default)
    if isinstance(default, bool):
        return given.boolean(name, default)
    if isinstance(default, int):
        return given.integer(name, default)
    if isinstance(default, float):
        return float(given.number(name, default, least=0))
    return given.text_pairs(name, default)
