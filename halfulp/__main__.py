"""Run the program ``halfulp`` by ``python -m halfulp``."""

from .cli import main

main()
