"""Makes the proxy of the kills and the linked hosts importable."""

from __future__ import annotations

import sys
from pathlib import Path

INTEGRATION = Path(__file__).parents[1]
sys.path += [str(INTEGRATION / "checkpoint_faults"), str(INTEGRATION / "hosts")]
