"""Calls those functions of NVIDIA's management library (NVML) that samples need and that are cheap.

It never lists the processes on a GPU, because this takes milliseconds, during which the driver delays the training.
Names and numbers are those of nvml.h (https://docs.nvidia.com/deploy/nvml-api/).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Any

from cloudtrain._dataclass import dataclass
from cloudtrain.contract.host import visible_gpus

LIBRARY = "libnvidia-ml.so.1"
IS_LOST = 15
"""NVML_ERROR_GPU_IS_LOST."""
SHORT = len("GPU-8932f937")
"""The characters of a GPU's UUID that suffice for CUDA_VISIBLE_DEVICES, and for people."""
MOST_EVENTS = 100
"""The most faults to read at a time."""

_XID = 0x8
"""nvmlEventTypeXidCriticalError."""
_REASONS = (("power", 0x04 | 0x80), ("thermal", 0x20 | 0x40), ("hardware", 0x08))
"""Bits of nvmlClocksThrottleReasons, only for reasons about which a user can do something."""


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


@dataclass(frozen=True)
class Reading:
    """The columns of all GPUs, without the prefix ``gpu_``; None for values that the driver does not report."""

    ids: list[str]
    columns: dict[str, list[Any]]
    lost: list[str]
    """The GPUs that the driver has lost."""


class NvmlFailed(Exception):
    """Raised if the library does not work on this host."""


class Nvml:
    """The GPUs of this host that are visible to the ranks, including in containers and with CUDA_VISIBLE_DEVICES.

    Any call may take minutes if the driver hangs.
    """

    def __init__(self, environ: Mapping[str, str], library: str = LIBRARY) -> None:
        """Raises OSError if there is no library, and NvmlFailed if it does not work."""
        self._library = ctypes.CDLL(library)
        if self._call("nvmlInit_v2"):
            raise NvmlFailed
        self._devices = dict(self._choose(environ))
        self._faults = self._register()

    def read(self) -> Reading:
        """The current values, and the faults since the last call."""
        xids = dict(self._new_faults())
        columns: dict[str, list[Any]] = {}
        lost = []
        for uuid, device in self._devices.items():
            use, memory, throttling = _Utilization(), _Memory(), ctypes.c_ulonglong()
            failed = self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(use))
            if failed == IS_LOST:
                lost.append(uuid)
            has_memory = not self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            has_reasons = not self._call(
                "nvmlDeviceGetCurrentClocksThrottleReasons", device, ctypes.byref(throttling)
            )
            power = self._number("nvmlDeviceGetPowerUsage", ctypes.c_uint(), device)
            values = {
                "use": None if failed else use.gpu,
                "memory": memory.used if has_memory else None,
                "memory_total": memory.total if has_memory else None,
                "power": None if power is None else power / 1000,
                "temperature": self._number("nvmlDeviceGetTemperature", ctypes.c_uint(), device, 0),
                "throttling": ",".join(name for name, bits in _REASONS if throttling.value & bits)
                if has_reasons
                else None,
                # uncorrected errors, since the driver was loaded
                "ecc": self._number("nvmlDeviceGetTotalEccErrors", ctypes.c_ulonglong(), device, 1, 0),
                "xid": xids.get(device.value or 0),
            }
            for name, value in values.items():
                columns.setdefault(name, []).append(value)
        short = {uuid: uuid[:SHORT] if uuid.startswith("GPU-") else uuid for uuid in self._devices}
        names = short if len(set(short.values())) == len(short) else dict(zip(short, short))
        return Reading([*names.values()], columns, [names[uuid] for uuid in lost])

    def _choose(self, environ: Mapping[str, str]) -> Iterator[tuple[str, ctypes.c_void_p]]:
        """The GPUs that are visible to the ranks, by UUID; instead of divided GPUs, their MIG devices if possible."""
        wanted = environ.get("CUDA_VISIBLE_DEVICES") is not None
        visible = visible_gpus(environ) if wanted else ()
        count = self._number("nvmlDeviceGetCount_v2", ctypes.c_uint()) or 0
        for index in range(int(count)):
            device = self._handle("nvmlDeviceGetHandleByIndex_v2", index)
            uuid = self._uuid(device)
            if device is None or not uuid:
                continue
            parts = dict(self._parts(device))
            if not wanted or str(index) in visible or any(uuid.startswith(name) for name in visible):
                yield from parts.items() if parts else [(uuid, device)]
            else:
                yield from ((name, part) for name, part in parts.items() if name in visible)

    def _parts(self, device: ctypes.c_void_p) -> Iterator[tuple[str, ctypes.c_void_p]]:
        """The MIG devices of a GPU."""
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        if self._call("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending)) or not mode:
            return
        for index in range(int(self._number("nvmlDeviceGetMaxMigDeviceCount", ctypes.c_uint(), device) or 0)):
            part = self._handle("nvmlDeviceGetMigDeviceHandleByIndex", device, index)
            uuid = self._uuid(part)
            if part is not None and uuid:
                yield uuid, part

    def _uuid(self, device: ctypes.c_void_p | None) -> str:
        text = ctypes.create_string_buffer(96)  # NVML_DEVICE_UUID_V2_BUFFER_SIZE
        if device is None or self._call("nvmlDeviceGetUUID", device, text, 96):
            return ""
        return text.value.decode("ascii", "replace")

    def _register(self) -> ctypes.c_void_p | None:
        """The set of events for the faults of the GPUs; None if there are no such events."""
        faults = self._handle("nvmlEventSetCreate")
        for device in self._devices.values() if faults else ():
            self._call("nvmlDeviceRegisterEvents", device, ctypes.c_ulonglong(_XID), faults)
        return faults

    def _new_faults(self) -> Iterator[tuple[int, int]]:
        event = _Event()
        for _ in range(MOST_EVENTS if self._faults else 0):
            if self._call("nvmlEventSetWait_v2", self._faults, ctypes.byref(event), 0):
                return
            if event.type & _XID:
                yield event.device, event.data

    def _handle(self, function: str, *arguments: Any) -> ctypes.c_void_p | None:
        handle = ctypes.c_void_p()
        return None if self._call(function, *arguments, ctypes.byref(handle)) else handle

    def _number(self, function: str, result: Any, *arguments: Any) -> int | None:
        """The number that a function stores; None if it fails."""
        return None if self._call(function, *arguments, ctypes.byref(result)) else result.value

    def _call(self, function: str, *arguments: Any) -> int:
        """The error code of a function; -1 if the driver is too old to have the function."""
        try:
            code: int = getattr(self._library, function)(*arguments)
        except AttributeError:
            return -1
        return code
