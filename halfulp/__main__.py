"""``python -m halfulp`` is the command ``halfulp``."""

from .cli import main

main()
