"""Makes the training program importable, so that a test can run it in its own process."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "programs"))
