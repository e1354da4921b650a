"""Makes the modules of the kills importable."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path += [str(TESTS / "integration" / "checkpoint_faults"), str(TESTS / "e2e")]
