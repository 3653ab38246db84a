"""Release: metadata of the package, changelog, and the workflows that test and publish it."""

import os
import re
import subprocess
import tomllib

import pytest
import yaml

import halfulp
from tests.package.test_package import setup_script
from tests.settings import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def steps(workflow):
    """Return the shell commands of all jobs of a workflow."""
    return [step["run"] for job in WORKFLOWS[workflow]["jobs"].values() for step in job["steps"] if "run" in step]


def test_changelog_begins_with_the_version_in_one_page():
    heading, *older = re.split(r"^## ", CHANGELOG, flags=re.MULTILINE)[1:]
    assert re.match(rf"{re.escape(halfulp.__version__)}(, unreleased)?\n", heading)
    assert [len(section.splitlines()) for section in (heading, *older) if len(section.splitlines()) > 60] == []
    assert "has at most 60 lines" in CHANGELOG


def test_authors_are_those_of_the_citation_and_the_license():
    ((_, name),) = PROJECT["authors"][0].items()
    assert f"\n  - name: {name}\n" in (ROOT / "CITATION.cff").read_text()
    assert name.removeprefix("The ") in (ROOT / "LICENSE").read_text()
    assert PROJECT["maintainers"] == PROJECT["authors"]


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/owner/halfulp.git", "https://github.com/owner/halfulp"),
        ("https://user:password@host.org/owner/halfulp", "https://host.org/owner/halfulp"),
        ("git@github.com:owner/halfulp.git", "https://github.com/owner/halfulp"),
        ("ssh://git@host.org:2222/group/part/halfulp", "https://host.org/group/part/halfulp"),
        ("/srv/git/halfulp.git", None),
        ("../halfulp.git", None),
        ("file:///srv/halfulp.git", None),
        ("", None),
    ],
)
def test_address_of_repository_follows_from_its_remote(remote, address):
    assert setup_script().address(remote) == address


def test_address_of_repository_is_that_of_the_workflow():
    environment = {"GITHUB_SERVER_URL": "https://host", "GITHUB_REPOSITORY": "owner/halfulp"}
    assert setup_script().repository(environment) == "https://host/owner/halfulp"


def test_address_of_repository_is_that_of_its_sdist(monkeypatch, tmp_path):
    script = setup_script()
    monkeypatch.setattr(script, "ROOT", tmp_path)
    assert script.repository({}) is None
    (tmp_path / "PKG-INFO").write_text("Name: halfulp\nProject-URL: Source, https://host/o\n\nText\n")
    assert script.repository({}) == "https://host/o"


def test_workflows_test_the_supported_versions_of_python():
    supported = [line.split(" :: ")[-1] for line in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", line)]
    assert WORKFLOWS["test"]["jobs"]["test"]["strategy"]["matrix"]["python"] == supported
    assert PROJECT["requires-python"] == f">={supported[0]}"
    found = re.findall(r"python(3\.\d+)", (ROOT / ".ci" / "setup").read_text())
    assert {version for version in found if version != "3"} == set(supported)


def test_workflows_call_targets_of_make():
    makefile = (ROOT / "Makefile").read_text()
    called = [
        target for workflow in WORKFLOWS for target in re.findall(r"^make (\w+)", "\n".join(steps(workflow)), re.M)
    ]
    assert set(called) == {"lint", "test", "package", "docs"}
    assert [name for name in called if not re.search(rf"^{name}:", makefile, re.MULTILINE)] == []


def test_release_publishes_without_a_password():
    jobs = WORKFLOWS["release"]["jobs"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


@pytest.mark.parametrize(
    ("tag", "heading", "code"),
    [("v{}", "## {}", 0), ("v{}", "## {}, unreleased", 1), ("v{}.1", "## {}", 1), ("v{}", "## 0.0.1", 1)],
    ids=["release", "unreleased", "other version", "no heading"],
)
def test_release_needs_a_tag_with_the_released_version(tag, heading, code, tmp_path):
    (tmp_path / "halfulp").symlink_to(ROOT / "halfulp")
    (tmp_path / "CHANGELOG.md").write_text(f"# Changelog\n\n{heading.format(halfulp.__version__)}\n\n- Text.\n")
    environment = os.environ | {"GITHUB_REF_NAME": tag.format(halfulp.__version__)}
    run = subprocess.run(["bash", "-e", "-c", steps("release")[0]], cwd=tmp_path, env=environment)
    assert run.returncode == code
