"""Make ``.venv`` or bring it up to date. Standard library only; called by ``.ci/setup``.

The stage ``sim`` installs what simulations need, ``ready`` all that tests and reports need, and ``docs`` what pages
need beside it. A file of this name in ``.venv`` is written last. It records the checkout, interpreter, lock file,
project file and version of a complete stage. The next call completes an environment without this file (after an
interrupt, a lost connection or a full disk). Only one set-up of a checkout runs at a time; others wait for it.
"""

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import IO, NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
LOCKS = {"sim": ROOT / ".ci/sim.lock", "ready": ROOT / ".ci/requirements.lock", "docs": ROOT / ".ci/docs.lock"}
CPU_BUILDS = "https://download.pytorch.org/whl/cpu/"
"""Index of builds of torch without CUDA, whose libraries take 4 GB that a simulation does not use."""

UV = "uv==0.13.9"
"""Installer of the packages, which pip installs first; it reads pip's settings."""

PROGRESS = 10
"""Seconds between lines of progress."""
LOG = ROOT / "build" / "setup.log"


def say(text: str) -> None:
    print(f"halfulp: {text}", file=sys.stderr, flush=True)


def refuse(text: str) -> NoReturn:
    """Print an error and exit with code 3: a tool or the machine failed."""
    say(text)
    sys.exit(3)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def wanted(stage: str) -> dict[str, str]:
    """Return the record of a complete stage; the Makefile reads ``checkout``, its first line."""
    return {
        "checkout": f"[{ROOT}]",
        "python": f"{sys.version.split()[0]} in {sys.base_prefix}",
        "lock": digest(LOCKS[stage]),
        "project": digest(ROOT / "pyproject.toml"),
        "version": digest(ROOT / "halfulp" / "__init__.py"),
    }


def recorded(stage: str) -> dict[str, str]:
    """Read the record of a stage; empty unless it is complete and its interpreter still exists."""
    ready = VENV / stage
    if not (ready.is_file() and (VENV / "bin" / "python").exists()):
        return {}
    return dict(line.split(" = ", 1) for line in ready.read_text().splitlines() if " = " in line)


def record(stage: str, new: dict[str, str]) -> None:
    """Write the record of a complete stage."""
    unfinished = VENV / f"{stage}.part"
    unfinished.write_text("".join(f"{key} = {value}\n" for key, value in new.items()))
    unfinished.replace(VENV / stage)


def run(what: str, command: list[str], log: IO[str], held: int, more: dict[str, str] | None = None) -> None:
    """Run a command. It inherits the lock, so that others wait for it even if this set-up is killed."""
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    print("$", *command, file=log, flush=True)
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        cwd=ROOT,
        env=environment | (more or {}),
        pass_fds=[held],
    )
    if waited(process, what):
        lines = [line.strip() for line in LOG.read_text(errors="replace").splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith(("error", "×")) or "No space left" in line]
        reason = (errors or lines)[-1].removeprefix("ERROR: ").lstrip("× ").rstrip(".")
        refuse(f"{what} failed ({reason}); its whole output is in {LOG.relative_to(ROOT)}.")


def waited(process: "subprocess.Popen[bytes]", what: str) -> int:
    """Wait for a process, and print its work and its time in seconds now and then."""
    seconds = 0
    while True:
        try:
            return process.wait(PROGRESS)
        except subprocess.TimeoutExpired:
            seconds += PROGRESS
            say(f"  {what}, {seconds} s ...")


def pip_settings(python: str) -> dict[str, str]:
    """Return the settings of pip, from its files and from the environment, by name."""
    command = [python, "-I", "-m", "pip", "config", "list"]
    lines = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    settings = {}
    for section in ("global.", "install.", ":env:."):
        for line in lines:
            name, _, value = line.removeprefix(section).partition("=")
            if line.startswith(section):
                settings[name] = " ".join(value.strip("'\"").replace("\\n", " ").split())
    return settings


def cpu_builds(settings: dict[str, str]) -> list[str]:
    """Return the option for torch without CUDA, for machines on which torch's usual build brings it."""
    if not sys.platform.startswith("linux") or "find-links" in settings or "extra-index-url" in settings:
        return []
    try:
        with urllib.request.urlopen(CPU_BUILDS, timeout=3):
            return ["--extra-index-url", CPU_BUILDS]
    except OSError:
        return []


def install(stage: str, old: dict[str, str], new: dict[str, str], held: int) -> None:
    for module in ("venv", "ensurepip"):
        if importlib.util.find_spec(module) is None:
            refuse(
                f"{sys.executable} has no module {module}, which virtual environments need: install it "
                "(Debian: apt install python3-venv), or name another Python with PYTHON=/path/to/python3."
            )
    (VENV / stage).unlink(missing_ok=True)
    LOG.parent.mkdir(exist_ok=True)
    python = str(VENV / "bin" / "python")
    lock = LOCKS[stage]
    packages = [line for line in lock.read_text().splitlines() if line[:1].isalnum()]
    with LOG.open("w") as log:
        if not all(old.get(key) == new[key] for key in ("checkout", "python")):
            say(f"setting up .venv with {len(packages)} packages; this happens once and takes a minute or two ...")
            if VENV.is_symlink():
                refuse(f"{VENV} is a link: remove it, and run this command again.")
            if VENV.exists():
                shutil.rmtree(VENV)
            base = getattr(sys, "_base_executable", "") or sys.executable
            run("making the virtual environment", [base, "-I", "-m", "venv", str(VENV)], log, held)
            old = {}
        else:
            say(f"bringing .venv up to date with {len(packages)} packages ...")
        # Python compiles the modules that are imported, a small part of the packages, and keeps the result.
        pip = [python, "-I", "-m", "pip", "install", "--no-input", "--progress-bar", "off", "--no-compile"]
        settings = pip_settings(python)
        run("installing uv", [*pip, UV], log, held)
        # As pip does, uv takes the newest version of any index, and the machine's certificates.
        uv = [str(VENV / "bin" / "uv"), "pip", "install", "--python", python]
        uv += ["--index-strategy", "unsafe-best-match", "--system-certs"]
        for name in ("index-url", "extra-index-url", "find-links"):
            uv += [word for value in settings.get(name, "").split() for word in (f"--{name}", value)]
        if stage == "sim":
            uv += cpu_builds(settings)
        certificates = {"SSL_CERT_FILE": settings["cert"]} if "cert" in settings else {}
        if old.get("lock") != new["lock"]:
            run("installing the locked packages", [*uv, "-r", str(lock)], log, held, certificates)
        own = [*uv, "--no-deps", "--no-build-isolation", "-e", str(ROOT)]
        run("installing halfulp", own, log, held, certificates)
        find = "import find_libpython, sys; sys.exit(not find_libpython.find_libpython())"
        if subprocess.run([python, "-I", "-c", find], stdout=log, stderr=log).returncode:
            refuse(
                f"{sys.executable} has no shared library, which cocotb loads into the simulator: install it "
                "(Debian: apt install libpython3-dev), or name another Python with PYTHON=/path/to/python3."
            )
    record(stage, new)
    if stage == "ready":
        record("sim", wanted("sim") | {"python": new["python"]})


def main() -> None:
    interpreter_was_named = "--interpreter-was-named" in sys.argv[1:]
    stage = sys.argv[1]
    held = os.open(__file__, os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say("another set-up of this checkout is running; waiting for it ...")
        fcntl.flock(held, fcntl.LOCK_EX)
    old, new = recorded(stage), wanted(stage)
    if old and not interpreter_was_named:
        new["python"] = old["python"]  # another python3 on PATH does not replace a working environment
    if old == new:
        (VENV / stage).touch()  # make compares dates, and only those of the files have changed
    else:
        other = recorded("ready" if stage == "sim" else "sim")
        same = {key: value for key, value in other.items() if key in ("checkout", "python")}
        if same and not old and not interpreter_was_named:
            new["python"] = same["python"]
        install(stage, old or same, new, held)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        say("set-up interrupted; the next call starts it again.")
        sys.exit(130)
    except OSError as error:
        refuse(f"set-up failed ({error}).")
