"""Reports give signals Linux's names and numbers, whatever the system of the host or of the reader."""

from __future__ import annotations

import signal
import sys
from enum import IntEnum

import pytest

from cloudtrain._system.signals import LINUX, LINUX_NUMBERS, linux_number
from cloudtrain.contract import FailureClass, FailureReport


@pytest.mark.skipif(sys.platform != "linux", reason="compares with Linux")
def test_the_names_are_those_of_linux() -> None:
    assert {number: signal.Signals(number).name for number in LINUX if number != 16} == {
        number: name for number, name in LINUX.items() if number != 16
    }


def test_every_signal_survives_its_reason() -> None:
    for number in (*LINUX, 40):
        report = FailureReport(FailureClass.KILLED, "", rank=1, exit_code=128 + number, signal=number)
        assert FailureReport.from_reason(report.reason()) == report


@pytest.mark.parametrize(("name", "on_macos"), [("SIGBUS", 10), ("SIGUSR1", 30), ("SIGKILL", 9)])
def test_a_number_of_macos_is_translated(name: str, on_macos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signal, "Signals", IntEnum("Signals", {name: on_macos}))
    assert linux_number(on_macos) == LINUX_NUMBERS[name]
