"""The training program is imported too, to run it in the test's own process."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "programs"))
