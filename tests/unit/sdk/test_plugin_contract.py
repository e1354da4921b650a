"""A third-party platform that violates the protocol is reported by its name, without a traceback."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from cloudtrain import Estimator
from cloudtrain.errors import PlatformError, UnknownPlatform
from cloudtrain.platforms import get_platform
from cloudtrain.testing import FakePlatform

PLUGIN = """
from cloudtrain.testing import FakePlatform

VALUE = FakePlatform()

class Partial:
    name = "partial"
    def render(self, job): ...
    def submit(self, request): ...
    def logs(self, job_name, *, follow=False): ...
    def list(self): ...

class Nameless(FakePlatform):
    name = None
"""


@pytest.fixture(autouse=True)
def _plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "contract_plugin.py").write_text(PLUGIN)
    information = tmp_path / "contract-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: contract\nVersion: 1.0\n")
    points = {"missing": "Missing", "partial": "Partial", "nameless": "Nameless", "value": "VALUE"}
    lines = "".join(f"{name} = contract_plugin:{target}\n" for name, target in points.items())
    (information / "entry_points.txt").write_text(f"[cloudtrain.platforms]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("partial", "platform 'partial' lacks describe() and stop()"),
        ("nameless", "platform 'nameless' lacks the attribute name"),
        ("value", "platform 'value': contract_plugin:VALUE is not a class"),
    ],
)
def test_a_platform_that_lacks_a_part_of_the_protocol(name: str, message: str) -> None:
    with pytest.raises(PlatformError, match=re.escape(message)) as caught:
        get_platform(name)
    assert caught.value.hint


def test_an_entry_point_that_names_a_missing_class() -> None:
    with pytest.raises(UnknownPlatform, match=r"'missing' cannot be loaded: .*'Missing'"):
        get_platform("missing")


class _ResolvesNothing(FakePlatform):
    def resolve(self, job: Any) -> Any:
        return None


class _RendersDict(FakePlatform):
    def render(self, job: Any) -> Any:
        return {"job_name": job.job_name}


@pytest.mark.parametrize(
    ("platform", "message"),
    [
        (_ResolvesNothing(), "platform 'fake': resolve returned None, expected a TrainingJob"),
        (_RendersDict(), "platform 'fake': render returned a dict, expected a Request"),
    ],
)
def test_results_of_another_type(platform: FakePlatform, message: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    with pytest.raises(PlatformError, match=message):
        Estimator(tmp_path / "train.py", platform=platform).prepare()
