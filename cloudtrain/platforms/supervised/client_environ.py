"""The environment that a job inherits from the client that submits it."""

from __future__ import annotations

import os
from dataclasses import astuple

from cloudtrain.contract import Settings
from cloudtrain.contract.frameworks import FRAMEWORK_VARIABLES, HOSTFILE, TF_CONFIG
from cloudtrain.contract.rank import CLOUDTRAIN, HOROVODRUN, TORCHRUN
from cloudtrain.link.secret import RANKS_VARIABLE, VARIABLE
from cloudtrain.observe.steady import VARIABLE as CLOCK

LEFT_BEHIND = {
    *astuple(TORCHRUN),
    *astuple(HOROVODRUN),
    *astuple(CLOUDTRAIN),
    "MASTER_ADDR",
    "MASTER_PORT",
    "CURRENT_HOST",
    "SAGEMAKER_BASE_DIR",
    "SAGEMAKER_JOB_NAME",
    "SAGEMAKER_REGION",
    "CLOUDTRAIN_CHECKPOINT_MEMORY",
    "CLOUDTRAIN_RUN_DIR",
    HOSTFILE,
    "CLOUDTRAIN_AGENT_REPORT",
    "CLOUDTRAIN_HEARTBEAT_FILE",
    "CLOUDTRAIN_EVENTS_FILE",
    "CLOUDTRAIN_DIE_WITH_PARENT",
    "CLOUDTRAIN_RUNTIME_PID",
    CLOCK,
    VARIABLE,
    RANKS_VARIABLE,
    *Settings.variables(),
}
"""Variables that this client inherits if it runs inside a job. The new job must not inherit them."""


VARIABLE_OF_CONFIG = "CLOUDTRAIN_CONFIG"


def client_environ() -> dict[str, str]:
    """The environment of this client, without the variables of a job that it may run in."""
    environ = {name: value for name, value in os.environ.items() if not _belongs_to_a_job(name)}
    if "CLOUDTRAIN_RUN_DIR" in os.environ:  # outside of a job, the user has set these
        for name in (*FRAMEWORK_VARIABLES, TF_CONFIG):
            environ.pop(name, None)
    if environ.get(VARIABLE_OF_CONFIG):  # a job has another working folder
        environ[VARIABLE_OF_CONFIG] = os.path.abspath(environ[VARIABLE_OF_CONFIG])
    return environ


def _belongs_to_a_job(variable: str) -> bool:
    return variable in LEFT_BEHIND or variable.startswith(("SM_", "TORCHELASTIC_"))
