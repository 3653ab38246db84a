"""Metadata that follow from the place of the checkout: addresses of the repository, and the README with links to it.

All other settings are in `pyproject.toml`.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent

PAGES = {
    "Source": "",
    "Documentation": "/blob/HEAD/docs/index.md",
    "Changelog": "/blob/HEAD/CHANGELOG.md",
    "Issues": "/issues",
}
"""Pages of the repository, by their titles on package indexes."""


def repository(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the address of the repository: that of the workflow, of the sdist, or of the remote ``origin``."""
    if "GITHUB_REPOSITORY" in environment:
        return f"{environment.get('GITHUB_SERVER_URL', 'https://github.com')}/{environment['GITHUB_REPOSITORY']}"
    if (ROOT / "PKG-INFO").exists():
        match = re.search(r"^Project-URL: Source, (.*)$", (ROOT / "PKG-INFO").read_text(encoding="utf-8"), re.MULTILINE)
        return match and match[1]
    if not (ROOT / ".git").exists():
        return None
    command = ["git", "config", "remote.origin.url"]
    try:
        remote = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()
    except OSError:
        return None
    return address(remote)


def address(remote: str) -> str | None:
    """Return the address of the pages of a remote without user names and passwords; None for another protocol."""
    match = re.fullmatch(r"(?:(?:https|ssh)://)?(?:[^@/]*@)?([\w.-]+\.\w+)(?::\d+)?[:/](.+?)(?:\.git)?/?", remote)
    return match and f"https://{match[1]}/{match[2]}"


def long_description(readme: str, source: str | None) -> str:
    """README with absolute links to the repository at ``source``; without one, with no relative link and no picture."""

    def replaced(match: re.Match[str]) -> str:
        kind, text, path = match.groups()
        if source is not None:
            return f"{kind}[{text}]({source}/{'raw' if kind else 'blob'}/HEAD/{path})"
        return "" if kind else text

    return re.sub(r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]*)\)", replaced, readme)


if __name__ == "__main__":
    source = repository()
    setup(
        long_description=long_description((ROOT / "README.md").read_text(encoding="utf-8"), source),
        long_description_content_type="text/markdown",
        project_urls={title: f"{source}{page}" for title, page in PAGES.items()} if source else {},
    )
