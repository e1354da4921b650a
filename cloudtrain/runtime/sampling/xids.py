"""The numbers of faults that NVIDIA's driver reports (Xids), with their meaning and the remedy.

From NVIDIA's catalog (https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html).
"""

from __future__ import annotations

from typing import NamedTuple

from cloudtrain._system.patterns import pattern

_SCRIPT = (
    "Usually, the script or a library has a mistake: run the script with CUDA_LAUNCH_BLOCKING=1, or under "
    "compute-sanitizer. If only this GPU reports it, with different scripts, the GPU is faulty."
)
_FOLLOWS = "It follows from another error, or from the end of a process: look for what came before."
_RESTART = "Restarting the job is enough for now: reset the GPU when the node is idle."
_RESET = "Drain the node and reset the GPU (nvidia-smi --gpu-reset); if the fault returns, replace the GPU."
_REBOOT = "Drain the node and switch it off and on; if the fault returns, replace the GPU."
_REPLACE = "Drain the node, and replace the GPU."
_LINKS = "Drain the node, reset its GPUs, and look at the links: nvidia-smi nvlink -e."


class Xid(NamedTuple):
    meaning: str
    action: str
    is_of_hardware: bool = True
    """Whether it is a fault of the hardware or firmware. Other faults are usually mistakes of a program."""


XIDS = {
    13: Xid("an exception in a kernel", _SCRIPT, is_of_hardware=False),
    31: Xid("a kernel used an address that it does not have", _SCRIPT, is_of_hardware=False),
    32: Xid("the commands for the GPU were invalid", _SCRIPT, is_of_hardware=False),
    43: Xid("the GPU ended the work of a process after an error in it", _SCRIPT, is_of_hardware=False),
    45: Xid("the work of a process was removed from the GPU", _FOLLOWS, is_of_hardware=False),
    48: Xid("an uncorrectable error of its memory", _RESET),
    61: Xid("an internal controller has a breakpoint or a warning", _RESET),
    62: Xid("an internal controller has halted", _RESET),
    63: Xid("a faulty row of its memory will be replaced by a spare one", _RESTART),
    64: Xid("a faulty row of its memory could not be replaced by a spare one", _REPLACE),
    74: Xid("an error of NVLink", _LINKS),
    79: Xid("it has fallen off the bus", _REBOOT),
    92: Xid("many corrected errors of its memory", _RESTART),
    94: Xid("an uncorrectable error of its memory, in one process only", _RESTART),
    95: Xid("an uncorrectable error of its memory, for all processes", _RESET),
    110: Xid("a security fault", _RESET),
    119: Xid("its system processor (GSP) does not answer", _RESET),
    120: Xid("its system processor (GSP) has failed", _RESET),
    140: Xid("an uncorrectable error of its memory", _RESET),
    143: Xid("it could not be initialized", _RESET),
    145: Xid("an error of NVLink", _LINKS),
    149: Xid("an error of NVLink", _LINKS),
    154: Xid("the driver requires a recovery", _RESET),
}

OF_HARDWARE = tuple(number for number, xid in XIDS.items() if xid.is_of_hardware)

_LINE = pattern(r"NVRM: Xid \((?P<gpu>[^)]*)\): (?P<xid>\d+)\b")


def to_line(gpu: str, number: int) -> str:
    """A fault as a line of the kernel's log."""
    known = XIDS.get(number)
    return f"NVRM: Xid ({gpu}): {number}" + (f", {known.meaning}" if known else "")


def facts_of(number: int) -> dict[str, str]:
    """The facts that the text of a hint may contain."""
    known = XIDS.get(number)
    return {"xid_meaning": known.meaning, "xid_action": known.action} if known else {}


def of_hardware(number: int) -> str:
    """The meaning of a hardware fault, and the remedy; empty for other faults."""
    known = XIDS.get(number)
    return f"{known.meaning}. {known.action}" if known and known.is_of_hardware else ""


def of_programs(lines: str) -> str:
    """A hint for the first fault that a program may have caused; empty if there is none."""
    for found in _LINE.finditer(lines):
        known = XIDS.get(int(found["xid"]))
        if known and not known.is_of_hardware:
            return (
                f"The driver reported Xid {found['xid']} of {found['gpu']}: {known.meaning}. {known.action}"
            )
    return ""
