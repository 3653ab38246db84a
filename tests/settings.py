"""Settings that the environment gives to the tests."""

import os

EXHAUSTIVE = os.environ.get("HALFULP_EXHAUSTIVE") == "1"
"""All inputs, formats and rounding modes, in many hours."""
