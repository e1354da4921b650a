"""Guesses this user's platforms from the programs, files and settings on this machine. Queries no platform."""

from __future__ import annotations

import os
import shutil

from cloudtrain.config import read_config, read_section

PROGRAMS = {
    "container": ("docker", "podman"),
    "slurm": ("sinfo",),
    "pbs": ("qsub",),
    "torque": ("qsub",),
    "cobalt": ("qsub",),
    "lsf": ("bsub",),
}
FILES = {
    "kubernetes": {"KUBECONFIG": "~/.kube/config"},
    "sagemaker": {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"},
}
"""By platform: the variables that name its files, each with the path that is used without it."""
VARIABLES = {
    "kubernetes": ("KUBERNETES_SERVICE_HOST",),
    "sagemaker": ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
}
SECTIONS = ("slurm", "kubernetes")
"""Sections of the config file that describe a platform."""


def found_here() -> dict[str, str]:
    """By platform: the sign that this user has it, such as ``{"container": "docker"}``.

    Raises InvalidJob for a config file that cannot be read.
    """
    found = {"local": "this machine"}
    options = read_config().get("platform_options")
    if isinstance(options, dict) and {"hosts", "hostfile"} & {*options}:
        found["hosts"] = "platform_options of the config file"
    for name in {**PROGRAMS, **FILES}:
        sign = _sign_of(name)
        if sign:
            found[name] = sign
    return found


def _sign_of(name: str) -> str:
    """The program, section, variable or file that indicates a platform; empty if there is none."""
    for program in PROGRAMS.get(name, ()):
        if shutil.which(program):
            return program
    if name in SECTIONS and read_section(name):
        return "the config file"
    for variable in VARIABLES.get(name, ()):
        if os.environ.get(variable):
            return variable
    for variable, usual in FILES.get(name, {}).items():
        listed = [part for part in os.environ.get(variable, "").split(os.pathsep) if part]
        for path in listed or [usual]:
            if os.path.exists(os.path.expanduser(path)):  # False also in a folder that this user cannot enter
                return path
    return ""
