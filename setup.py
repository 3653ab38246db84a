"""Long description for package indexes: the README without links that work only in a checkout.

All other settings are in `pyproject.toml`.
"""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent


def long_description(readme: str, source: str | None) -> str:
    """README with absolute links to the repository at ``source``; without one, with no relative link and no picture."""

    def replaced(match: re.Match[str]) -> str:
        kind, text, path = match.groups()
        if source is not None:
            return f"{kind}[{text}]({source}/{'raw' if kind else 'blob'}/HEAD/{path})"
        return "" if kind else text

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)", replaced, readme)


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    text = long_description((ROOT / "README.md").read_text(), project.get("urls", {}).get("Source"))
    setup(long_description=text, long_description_content_type="text/markdown")
