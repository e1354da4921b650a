"""The way to the parts of other folders that play a platform."""

from __future__ import annotations

import sys
from pathlib import Path

INTEGRATION = Path(__file__).parents[1]
sys.path += [str(INTEGRATION / name) for name in ("hosts", "sagemaker", "sagemaker_runtime")]
