"""Folder of the checkout, and settings that the environment gives to the tests."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

EXHAUSTIVE = os.environ.get("HALFULP_EXHAUSTIVE") == "1"
"""All inputs, formats and rounding modes, in many hours."""
