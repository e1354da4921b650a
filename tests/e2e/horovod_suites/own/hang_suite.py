"""A suite that hangs in its second test."""

import time


def test_passes() -> None: ...


def test_hangs() -> None:
    time.sleep(3600)
