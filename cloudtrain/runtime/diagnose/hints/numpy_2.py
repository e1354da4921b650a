"""Names and calls that new versions of NumPy no longer have."""

from __future__ import annotations

from cloudtrain.runtime.diagnose.hints.table import Hint

HINTS = (
    Hint(
        "AttributeError: `np.Inf` was removed in the NumPy 2.0 release. Use `np.inf` instead.",
        r"^AttributeError: `np\.\w+` was removed in the NumPy 2\.0 release\.",
        "The code is written for NumPy 1. Change it as the message says, or add numpy<2 to requirements.txt (NumPy 1 "
        "has releases for Python 3.12 and older).",
    ),
    Hint(
        "AttributeError: module 'numpy' has no attribute 'product'",
        r"^AttributeError: module 'numpy' has no attribute "
        r"'(?P<name>product|cumproduct|msort|in1d|trapz|compat|math|disp)'",
        "Newer releases of NumPy do not have np.{name}. Replace it, or add numpy<2 to requirements.txt (NumPy 1 has "
        "releases for Python 3.12 and older).",
    ),
    Hint(
        "AttributeError: module 'numpy' has no attribute 'float'. `np.float` was a deprecated alias ...",
        r"^AttributeError: module 'numpy' has no attribute '\w+'\.\n`np\.\w+` was a deprecated alias for the builtin",
        "NumPy 1.24 removed this alias. Write the builtin instead, as the message says: it means the same.",
    ),
    Hint(
        "ValueError: Unable to avoid copy while creating an array as requested. ...",
        r"^ValueError: Unable to avoid copy while creating an array as requested",
        "The code is written for NumPy 1. Change the call as the message says, or add numpy<2 to requirements.txt "
        "(NumPy 1 has releases for Python 3.12 and older).",
    ),
    Hint(
        "ValueError: setting an array element with a sequence. The requested array has an inhomogeneous shape ...",
        r"^ValueError: setting an array element with a sequence\. The requested array has an inhomogeneous shape",
        "The rows differ in length. Since NumPy 1.24, such an array has to be asked for: dtype=object.",
    ),
)
