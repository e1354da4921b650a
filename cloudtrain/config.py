"""The user's defaults: a YAML file of Estimator arguments.

``$CLOUDTRAIN_CONFIG``, else ``$XDG_CONFIG_HOME/cloudtrain/config.yaml``, else ``~/.config/cloudtrain/config.yaml``.
``$CLOUDTRAIN_RUNTIME`` overrides the file's ``runtime``. An empty variable counts as unset.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import Any

from cloudtrain._system.users import ROOT, user_id
from cloudtrain.errors import InvalidJob, nearest

NOT_DEFAULTS = ("source", "cost_terms", "job_name", "inputs")
"""Fields that describe one job only."""
SECTIONS = ("history", "kubernetes", "prices", "slurm")
"""Keys of the file that are not fields of a job: each is read by its platform, the history, or `cloudtrain.cost`."""


def config_path() -> Path:
    given = os.environ.get("CLOUDTRAIN_CONFIG")
    if given:
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(base).expanduser() / "cloudtrain" / "config.yaml"


def _exists(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        hint = "Make its folder readable, or set CLOUDTRAIN_CONFIG to another file."
        raise InvalidJob(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    return True


def config_warnings() -> list[str]:
    """Warnings, one sentence each, if other users can change the user's defaults, or read secrets in them."""
    from cloudtrain.spec import is_secret

    path = config_path()
    try:
        status = path.stat()
        can_others_read = user_id() >= 0 and status.st_mode & 0o044  # Windows has neither
        environment = read_config().get("environment") if can_others_read else None
    except (OSError, InvalidJob):
        return []
    changed = []
    if user_id() >= 0 and stat.S_ISREG(status.st_mode):
        if status.st_uid not in (user_id(), ROOT):
            changed = [f"{path} belongs to another user, who can change the prices and defaults of your jobs"]
        elif status.st_mode & stat.S_IWOTH:
            changed = [f"all users can change {path}, the prices and defaults of your jobs: chmod o-w {path}"]
    found = environment if isinstance(environment, dict) else {}
    names = [name for name, value in found.items() if is_secret(str(name), str(value))]
    if not names:
        return changed
    return [*changed, f"other users can read {path}, which has {', '.join(names)}: chmod 600 {path}"]


def read_section(name: str) -> dict[str, Any]:
    """A section of the config file; empty if it has none. Raises InvalidJob if the file cannot be read."""
    section = _read_file().get(name) or {}
    if not isinstance(section, dict):
        raise InvalidJob(f"{config_path()}: {name} is not a mapping", hint="Indent its keys below it.")
    return section


def is_configured() -> bool:
    """Whether the user has a config file, or names one. Raises InvalidJob if that cannot be determined."""
    return bool(os.environ.get("CLOUDTRAIN_CONFIG")) or _exists(config_path())


def _read_file() -> dict[str, Any]:
    """The content of the file, which callers must not modify. The file is read again only if it has changed."""
    if not is_configured():
        return {}
    path = config_path()
    try:
        found = path.stat()
    except OSError:  # reading it reports why
        return _parse(path, None)
    if not stat.S_ISREG(found.st_mode) and str(path) != os.devnull:  # reading a named pipe may block forever
        hint = "Put a YAML file there, or set CLOUDTRAIN_CONFIG to another file."
        raise InvalidJob(f"{path} cannot be read: it is not a regular file", hint=hint)
    return _parse(path, (found.st_mtime_ns, found.st_size, found.st_ino))


@lru_cache(maxsize=1)
def _parse(path: Path, _version: tuple[int, ...] | None) -> dict[str, Any]:
    from cloudtrain.spec import read_job_file

    return read_job_file(path, may_be_empty=True)


def read_config() -> dict[str, Any]:
    """The user's defaults; empty if there is neither file nor variable.

    Raises:
        InvalidJob: the file cannot be read, is not valid YAML, or has a key that is not an argument of an Estimator; or
            the variable names an unknown runtime.
    """
    from cloudtrain.spec import FIELDS, RUNTIMES

    path = config_path()
    config = {key: value for key, value in _read_file().items() if key not in SECTIONS}
    for key in config:
        if key in NOT_DEFAULTS:
            hint = "It describes one job only: set it in the job file or on the command line."
            raise InvalidJob(f"{path}: {key!r} cannot have a default", hint=hint)
        if key not in FIELDS:
            known = [*(field for field in FIELDS if field not in NOT_DEFAULTS), *SECTIONS]
            raise InvalidJob(f"{path}: {key!r} cannot have a default", hint=nearest(key, known))
    runtime = os.environ.get("CLOUDTRAIN_RUNTIME")
    if not runtime:
        return config
    if runtime not in RUNTIMES:
        raise InvalidJob(
            f"CLOUDTRAIN_RUNTIME: there is no runtime {runtime!r}", hint=nearest(runtime, RUNTIMES)
        )
    return {**config, "runtime": runtime}
