"""Package: a wheel, an sdist, an editable install and a bare checkout give the same library."""

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from fractions import Fraction
from pathlib import Path

import pytest

import halfulp
from halfulp.cli import COMMANDS
from halfulp.hdl.formats import parse
from tests.settings import ROOT

ROOMS = ("boards", "fpga", "golden", "hdl", "lab", "sim", "units")
PACKAGES = Path(pytest.__file__).resolve().parents[1]
"""Folder of the installed packages that halfulp requires."""

KINDS = ("wheel", pytest.param("sdist", marks=pytest.mark.slow), "editable")

USER = """\
import halfulp
from halfulp.units import Mac

reveal_type(halfulp.parse("e5m2").width)
reveal_type(Mac.of("e5m2*e5m2+e6m5.rn").latency)
Mac(a="e5m2", build=1)
"""


def run(*words, cwd, **environment):
    """Return the output of a command that succeeds."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in words], cwd=cwd, env=clean | environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def sources(root):
    """Return the digest of every file that the package needs at run time, by its name below `halfulp/`."""
    found = {}
    for folder, folders, names in os.walk(root / "halfulp", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for path in (Path(folder, name) for name in names if not name.endswith(".pyc")):
            found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """Return a copy of this checkout for builds."""
    place = tmp_path_factory.mktemp("checkout") / "halfulp"
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in names:
        if (ROOT / name).exists():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, place / name, follow_symlinks=False)
    return place


@pytest.fixture(scope="module")
def built(checkout, tmp_path_factory):
    """Build wheel and sdist of the checkout."""
    folder = tmp_path_factory.mktemp("dist")
    code = "import setuptools.build_meta as b, sys; folder = sys.argv[1]; b.build_wheel(folder); b.build_sdist(folder)"
    run(sys.executable, "-c", code, folder, cwd=checkout)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return {"wheel": wheel, "sdist": sdist}


def install(kind, checkout, built, folder):
    """Return the Python of a new environment with one kind of installation and the packages of this one."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=ROOT)
    python = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python3*/site-packages")
    (site / "packages.pth").write_text(f"{PACKAGES}\n")
    what = ["-e", checkout] if kind == "editable" else [built[kind]]
    options = ["-q", "--no-index", "--no-deps", "--no-build-isolation", "--ignore-installed"]
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, *what, cwd=ROOT)
    return python


@pytest.fixture(scope="module", params=KINDS)
def installed(request, checkout, built, tmp_path_factory):
    return install(request.param, checkout, built, tmp_path_factory.mktemp(request.param) / "venv")


def test_version_is_defined_once():
    assert importlib.metadata.version("halfulp") == halfulp.__version__
    assert halfulp.__version__ not in (ROOT / "pyproject.toml").read_text()


def test_citation_has_the_version():
    assert f"\nversion: {halfulp.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_locked_packages_fit_together():
    """No package of the lock file needs another one or another version."""
    checked = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, check=False)
    assert not checked.returncode, checked.stdout


def test_import_of_halfulp_is_lazy():
    code = (
        "import sys, halfulp; halfulp.__version__; assert not {'amaranth', 'numpy'} & set(sys.modules);"
        "halfulp.parse('e5m2'); assert not {'torch', 'numpy'} & set(sys.modules);"
        "halfulp.golden; assert 'torch' in sys.modules"
    )
    run(sys.executable, "-c", code, cwd=ROOT)


def test_import_of_halfulp_rejects_unknown_name():
    with pytest.raises(AttributeError, match="nothing"):
        halfulp.nothing  # noqa: B018  # reading it is the test
    assert set(halfulp.__all__) <= set(dir(halfulp))


def test_package_links_lead_to_rooms():
    for room in ROOMS:
        link = ROOT / "halfulp" / room
        assert link.is_symlink()
        assert os.readlink(link) == f"../{room}"


def test_bare_checkout_runs_commands(checkout):
    """`-S` hides the installed packages of this environment."""
    said = run(sys.executable, "-S", "-m", "halfulp", "--version", cwd=checkout, PYTHONPATH=str(PACKAGES))
    assert said == f"halfulp, version {halfulp.__version__}\n"
    assert "mac" in run(sys.executable, "-S", "-m", "halfulp", "list", "units", cwd=checkout, PYTHONPATH=str(PACKAGES))


def test_sdist_has_every_source_as_a_file(built, checkout):
    with tarfile.open(built["sdist"]) as archive:
        members = {name.partition("/")[2]: member for name, member in zip(archive.getnames(), archive, strict=True)}
    assert {name for name in members if name.startswith("halfulp/") and members[name].isfile()} == set(
        sources(checkout)
    )
    assert not any(member.issym() or member.islnk() for member in members.values())
    assert {"pyproject.toml", "README.md", "LICENSE"} <= set(members)


def test_wheel_has_every_source_as_a_file(built, checkout):
    with zipfile.ZipFile(built["wheel"]) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        found = {name: hashlib.sha256(archive.read(name)).hexdigest() for name in names}
    assert found == sources(checkout)
    assert {"halfulp/py.typed", "halfulp/sim/driver.cpp", "halfulp/golden/kernels/number.h"} <= set(found)


@pytest.mark.sampled(2)
def test_installation_has_every_source(installed, checkout, tmp_path):
    code = "import halfulp, sys; sys.stdout.write(halfulp.__file__)"
    assert sources(Path(run(installed, "-c", code, cwd=tmp_path)).parents[1]) == sources(checkout)


def setup_script():
    """The module `setup.py`, which runs nothing when it is imported."""
    spec = importlib.util.spec_from_file_location("halfulp_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_long_description_of_wheel_has_no_relative_links(built):
    with zipfile.ZipFile(built["wheel"]) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(name).decode()
    assert "\nDescription-Content-Type: text/markdown\n" in text
    links = re.findall(r"!?\[[^\]]*\]\(([^)]*)\)", text)
    assert links
    assert [link for link in links if not link.startswith("https://")] == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (None, " [a](https://a.org) page [b](#b)"),
        ("https://host/o", "![p](https://host/o/raw/HEAD/docs/p.svg) [a](https://a.org) "
         "[page](https://host/o/blob/HEAD/docs/p.md#top) [b](#b)"),
    ],
)  # fmt: skip
def test_long_description_replaces_relative_links(source, text):
    readme = "![p](docs/p.svg) [a](https://a.org) [page](docs/p.md#top) [b](#b)"
    assert setup_script().long_description(readme, source) == text


@pytest.mark.slow
@pytest.mark.sampled(2, 2)
def test_installation_simulates_in_empty_folder(installed, tmp_path):
    """The installation includes headers and C++ files, so a unit and a matrix product compile."""
    said = run(installed.parent / "halfulp", "sim", "mul", "e2m1fn", "--vectors", "100", cwd=tmp_path)
    assert said.endswith("PASS\n")
    code = (
        "import torch; from halfulp import golden; x = torch.full((4, 4), 0x3c);"
        "print(golden.gemm(x, x, 'e5m2*e5m2+e6m5.rn')[0, 0].item())"
    )
    four = parse("e6m5").encode(4)
    assert run(installed, "-c", code, cwd=tmp_path, HALFULP_KERNEL="native") == f"{four}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_pyright_resolves_an_installation(installed, tmp_path):
    """basedpyright is pyright with a bundled Node.js."""
    (tmp_path / "user.py").write_text(USER)
    words = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", installed, "user.py"]
    done = subprocess.run([str(word) for word in words], cwd=tmp_path, capture_output=True, text=True)
    found = [entry["message"] for entry in json.loads(done.stdout)["generalDiagnostics"]]
    assert sum(message.endswith('is "int"') for message in found) == 2, found
    assert any('cannot be assigned to parameter "build"' in message for message in found), found


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
def test_mypy_resolves_an_installation(installed, tmp_path):
    (tmp_path / "user.py").write_text(USER)
    words = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "--python-executable", installed, "user.py"]
    done = subprocess.run([str(word) for word in words], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout.count('Revealed type is "int"') == 2, done.stdout + done.stderr
    assert 'Argument "build" to "Mac" has incompatible type "int"' in done.stdout


def needs(*extras):
    """Return the packages of the core, or of an extra and the extras in it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [] if extras else project["dependencies"]
    for need in [need for extra in extras for need in project["optional-dependencies"][extra]]:
        inner = re.fullmatch(r"halfulp\[(.*)\]", need)
        found = found + (needs(*inner[1].split(",")) if inner else [need])
    return found


def names_of(lines):
    return {re.match(r"[\w-]+", line)[0].lower() for line in lines}


def with_dependencies(names):
    """Return packages with those that they require, such as pillow of matplotlib."""
    known, waiting = set(), {*names}
    while waiting:
        known.add(name := waiting.pop())
        # Packages of other systems are not installed.
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            lines = importlib.metadata.requires(name) or []
            waiting |= names_of(line for line in lines if "extra ==" not in line) - known
    return known


def without(*extras):
    """Return code that hides the modules of all packages except those of the core and of some extras."""
    hidden = names_of(needs("all")) - with_dependencies(names_of([*needs(*extras), *needs()]))
    modules = [module for module, owners in importlib.metadata.packages_distributions().items() if hidden & {*owners}]
    assert modules
    return f"import sys; sys.modules.update(dict.fromkeys({modules}));"


def command(code, *words):
    return f"{code} sys.argv = {['halfulp', *words]}; import halfulp.cli; halfulp.cli.main()"


def test_units_need_core_only(tmp_path):
    hidden = without()
    run(
        sys.executable,
        "-c",
        f"{hidden} import halfulp.units; assert not {{'numpy', 'mpmath'}} & set(sys.modules)",
        cwd=ROOT,
    )
    for unit in ("mul e4m3fn*e4m3fn", "pwl exp(e4m3fn).rn pieces=4"):
        assert "module " in run(
            sys.executable, "-c", command(hidden, "emit", unit), cwd=ROOT, HALFULP_BUILD=str(tmp_path)
        )
    assert "e4m3fn" in run(sys.executable, "-c", command(hidden, "list", "formats"), cwd=ROOT)


def test_help_of_commands_needs_core_only():
    code = (
        "import halfulp.cli as c\nfor name in c.COMMANDS:\n    sys.argv = ['halfulp', name, '--help']\n"
        "    try: c.main()\n    except SystemExit as end: assert not end.code"
    )
    assert run(sys.executable, "-c", without() + code, cwd=ROOT).count("Usage: ") == len(COMMANDS)


def test_missing_package_gives_one_sentence(tmp_path):
    words = [sys.executable, "-c", command(without(), "stats", "sru")]
    done = subprocess.run(
        words, cwd=ROOT, env=os.environ | {"HALFULP_BUILD": str(tmp_path)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"halfulp: [\w, ]+ not installed; run: pip install 'halfulp\[synth\]'\n", done.stderr)
    code = f"{without()} import halfulp; halfulp.golden"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stderr.endswith(
        "ModuleNotFoundError: the golden model needs torch; run: pip install 'halfulp[golden]'\n"
    )


EXTRAS = {
    "emit mul e2m1 --package -o package": "sim",
    "vectors mul e2m1": "sim",
    "emit mul e2m1 --flow vivado --target vu9p -o flow": "synth",
    "choose mul e2m1 --clock 100": "synth",
    "synth mul e2m1 --target ecp5-85k --route": "synth",
    "uvm mul e2m1": "uvm",
}
"""The extra that a command asks for if only the core is installed; it needs no other one then."""


@pytest.mark.slow
def test_commands_name_the_smallest_extra(tmp_path):
    code = (
        f"{without()} import shlex, halfulp.cli as c; from click.testing import CliRunner\n"
        f"for line in {[*EXTRAS]}: print(CliRunner().invoke(c.cli, shlex.split(line)).exception)"
    )
    said = run(
        sys.executable, "-c", code, cwd=tmp_path, PYTHONPATH=os.pathsep.join([str(ROOT), str(PACKAGES)])
    ).splitlines()
    assert [line.rpartition("; run: ")[2] for line in said] == [
        f"pip install 'halfulp[{extra}]'" for extra in EXTRAS.values()
    ]


@pytest.mark.slow
def test_golden_model_needs_golden_extra_only():
    code = (
        "import torch; from halfulp import golden; x = torch.tensor([[1.5]]);"
        "print(golden.gemm(x, x + x, 'e5m2*e5m2+e6m5.rn').item())"
    )
    assert run(sys.executable, "-c", without("golden") + code, cwd=ROOT) == f"{parse('e6m5').encode(Fraction(9, 2))}\n"


@pytest.mark.slow
@pytest.mark.sampled(3, 3)
@pytest.mark.parametrize(
    ("extra", "words"),
    [
        ("sim", ["sim", "mul", "e2m1", "--vectors", "100"]),
        ("uvm", ["uvm", "mul", "e2m1", "--vectors", "100"]),
        ("synth", ["synth", "mul", "e2m1", "--target", "ecp5-85k", "--route"]),
        ("synth", ["choose", "mul", "e2m1", "--clock", "100"]),
        ("synth", ["emit", "mul", "e2m1", "--flow", "vivado", "--target", "vu9p", "-o", "flow"]),
        ("sim", ["emit", "mul", "e2m1", "--package", "-o", "package"]),
        ("synth", ["tile", "--mac", "e2m1*e2m1+e3m4", "--n", "2", "--m", "2", "--board", "u55c", "-o", "tile"]),
        ("synth", ["report", "pwl", "tanh", "--fmt", "fxp1.3", "--pieces", "2", "-o", "."]),
        ("fpga", ["report", "sru", "-o", "."]),
        ("train", ["train", "lenet5", "--mac", "fp32", "--epochs", "1"]),
    ],
)
def test_extra_has_what_its_commands_need(extra, words, tmp_path):
    path = os.pathsep.join([str(ROOT), str(PACKAGES)])
    said = run(sys.executable, "-c", command(without(extra), *words), cwd=tmp_path, PYTHONPATH=path)
    assert said or any(tmp_path.iterdir())


@pytest.mark.slow
def test_synthesis_needs_no_torch(tmp_path):
    assert not any(need.startswith(("torch", "triton", "cocotb")) for need in needs("synth"))
    said = run(
        *(sys.executable, "-c", command(without("synth"), "synth", "mul", "e2m1")),
        cwd=ROOT,
        HALFULP_BUILD=str(tmp_path),
    )
    assert "| mul e2m1*e2m1.rn" in said


def test_heavy_packages_are_in_extras_of_their_own():
    """Triton is for GPUs only, and packages that only tests use are for developers only."""
    assert [need.split(">")[0] for need in needs("gpu") if need not in needs("golden")] == ["triton"]
    names = {re.match(r"[\w-]+", need)[0].lower() for need in needs("all")}
    assert not names & {"triton", "softposit", "cocotbext-axi", "transformers", "ml_dtypes", "scipy"}


WINDOWS = """\
import os, signal, sys
sys.modules.update(dict.fromkeys(["fcntl", "grp", "pwd", "resource", "termios", "tty", "pty"]))
for name in ("geteuid", "killpg", "posix_spawn", "posix_spawnp", "sched_getaffinity", "setsid", "fork"):
    vars(os).pop(name, None)
for name in ("SIGKILL", "SIGHUP", "SIGPIPE", "SIGXFSZ", "SIGALRM", "pthread_kill"):
    vars(signal).pop(name, None)
import sys;"""
"""Code that removes the modules and names that Windows lacks."""


@pytest.mark.parametrize("words", [["--help"], ["list", "units"], ["emit", "mul", "e5m2"]], ids=" ".join)
def test_commands_run_without_the_modules_of_posix(words, tmp_path):
    program = [sys.executable, "-W", "error::UserWarning", "-c", command(WINDOWS, *words)]
    said = run(*program, cwd=ROOT, HALFULP_BUILD=str(tmp_path / "build"))
    assert said == run(sys.executable, "-m", "halfulp", *words, cwd=ROOT, HALFULP_BUILD=str(tmp_path / "build"))


def test_commands_that_start_tools_name_the_systems_that_they_need(tmp_path):
    words = [sys.executable, "-c", command(WINDOWS, "synth", "mul", "e2m1")]
    environment = os.environ | {"HALFULP_BUILD": str(tmp_path)}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "needs Linux or macOS; on Windows, run halfulp in WSL" in done.stderr


def test_torch_has_no_upper_bound():
    assert [need for need in needs("golden") if need.startswith("torch")] == ["torch>=2.6"]


def test_locks_of_both_stages_have_the_same_versions():
    """Packages of simulations are a part of those of tests, and complete for the extra ``sim``."""
    sim, everything = (
        {line for line in (ROOT / ".ci" / name).read_text().splitlines() if line[:1].isalnum()}
        for name in ("sim.lock", "requirements.lock")
    )
    assert sim < everything
    named = {re.split(r"==", line)[0].lower().replace("_", "-") for line in sim}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = list(extras["dependencies"])
    for name in ("golden", "tables", "report", "sim"):
        needed += [line for line in extras["optional-dependencies"][name] if not line.startswith("halfulp")]
    assert {re.split(r"[<>=;, ]", line)[0].lower().replace("_", "-") for line in needed} <= named
