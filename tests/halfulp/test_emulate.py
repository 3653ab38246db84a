"""The command `halfulp emulate`: unmodified programs in the arithmetic of a policy."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

from halfulp import golden

PRODUCTS = "e5m2*e5m2+e6m5.rn"
MAC = f"{PRODUCTS}, elementwise=e6m5.rn"

PROGRAM = """
import sys
import numpy as np
import torch

torch.manual_seed(int(sys.argv[1]))
model = torch.nn.Linear(8, 4)
out = torch.relu(model(torch.ones(2, 8))) * 3
np.save(sys.argv[2], out.detach().numpy())
print("sum", np.asarray(out.detach()).sum() > 0)
if len(sys.argv) > 3:
    sys.exit(int(sys.argv[3]))
"""


@pytest.fixture
def script(tmp_path):
    """Write a program to a file."""

    def write(text=PROGRAM, name="program.py"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def run(*words, cwd=None):
    """Return exit code, output and errors of the command in a process of its own.

    As in an installed program, the current folder is not in ``sys.path`` (-P).
    """
    command = [sys.executable, "-P", "-m", "halfulp", "emulate", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", ["file", "module"])
def test_program_has_the_bits_of_the_context(script, tmp_path, way):
    path, array, report = script(), tmp_path / "out.npy", tmp_path / "report.json"
    program = [path] if way == "file" else ["-m", "program"]
    code, out, err = run("--mac", MAC, "-o", report, *program, 7, array, cwd=tmp_path)
    assert (code, out) == (0, "sum True\n"), err
    torch.manual_seed(7)
    model = torch.nn.Linear(8, 4)
    with golden.emulate(MAC):
        wanted = (torch.relu(model(torch.ones(2, 8))) * 3).detach()
    found = torch.from_numpy(np.load(array))
    assert torch.equal(found, wanted)
    # The report names operations, and where numbers left torch.
    assert "program.py:9: 1 array left torch; arithmetic on arrays is not emulated" in err
    assert "program.py:10: 1 array left torch" in err
    assert "100.0% of the multiply-accumulates are in the arithmetic of the policy" in err
    record = json.loads(report.read_text())
    assert record["arrays"] == {"program.py:9": 1, "program.py:10": 1}
    assert {row["operation"] for row in record["rows"]} == {"addmm", "mul"}


@pytest.mark.slow
def test_policies_come_from_a_file(script, tmp_path):
    policy = tmp_path / "policy.toml"
    policy.write_text(f'mac = "fp32"\n[layers."aten.addmm"]\nmac = "{PRODUCTS}"\n')
    code, _, err = run("--policy", policy, script(), 7, tmp_path / "out.npy")
    assert code == 0
    assert "e5m2*e5m2+e6m5.rn" in err


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit()", 0, ""),
        ("import sys; sys.exit('no data')", 1, "no data"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGINT)", 130, "stopped"),
        ("def f():\n    1 / 0\nf()", 1, "ZeroDivisionError"),
    ],
)
def test_exit_code_is_that_of_the_program(script, text, code, sentence):
    found, out, err = run("--mac", MAC, script(text))
    assert (found, out) == (code, ""), err
    assert sentence in err
    assert "of 0 operations are in torch's own" in err


NARROW = """
import torch

layer = torch.nn.Linear(2, 2)
with torch.autocast("cpu", torch.bfloat16):
    layer(torch.ones(1, 2))
"""


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("text", "mac", "sentence"),
    [
        (NARROW, MAC.replace("e6m5", "fp32"), "program.py:6: torch.bfloat16 does not hold every number of fp32"),
        (NARROW, f"{MAC}, device=rtl", "program.py:6: unknown device rtl; import halfulp.fpga.kernel.layers first"),
    ],
)
def test_policy_that_cannot_be_applied_is_one_sentence(script, text, mac, sentence):
    code, _, err = run("--mac", mac, script(text))
    assert code == 2
    assert f"halfulp: {sentence}" in err
    assert "of 0 operations are in torch's own" in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_traceback_begins_in_the_program(script):
    _, _, err = run("--mac", MAC, script("def f():\n    1 / 0\nf()"))
    first = err.partition("Traceback")[2].splitlines()[1]
    assert "program.py" in first
    assert "halfulp" not in first
    assert "line 3" in first


@pytest.mark.slow
def test_strict_stops_at_an_operation_of_torch(script):
    code, _, err = run("--mac", MAC, "--strict", script("import torch\ntorch.linalg.inv(torch.eye(3))"))
    assert code == 1
    table, _, last = err.partition("Traceback")
    assert "of the multiply-accumulates are in the arithmetic of the policy" in table
    assert "at program.py:2 would be computed in torch's own arithmetic" in last


FORMATS = """
from halfulp import golden

golden.register_format("half", 8, lambda x: golden.encode(x, "e5m2"), lambda codes: golden.decode(codes, "e5m2"))
golden.register_operator("first", lambda x, y: x, "bf16", "bf16")
"""

OWN = """
import formats
import torch

print((torch.full((1, 3), 0.3) @ torch.full((3, 1), 1.1)).item(), (torch.tensor(0.5) * 3).item())
"""


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("imports", ["formats.py", "formats"])
def test_policy_has_formats_and_operators_of_an_import(script, tmp_path, imports):
    """The program may import the same file, which runs once."""
    script(FORMATS, "formats.py")
    policy = "custom:half*custom:half+fp32.rn, elementwise=bf16.rn; mul=first"
    code, out, err = run("--import", imports, "--mac", policy, script(OWN), cwd=tmp_path)
    assert (code, out) == (0, f"{3 * 0.3125} 0.5\n"), err
    assert "custom:half*custom:half+fp32.rn" in err
    assert "mul=first" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["program.py"], "give the arithmetic by --mac MAC or by --policy FILE"),
        (
            ["--mac", MAC, "--policy", "policy.toml", "program.py"],
            "give the arithmetic by --mac MAC or by --policy FILE",
        ),
        (["program.py", "--mac", MAC], "options after PROGRAM belong to it, so write --mac before program.py"),
        (["program.py", "--policy=a.toml"], "options after PROGRAM belong to it, so write --policy before program.py"),
        (["--import", "missing.py", "--mac", MAC, "program.py"], "there is no file missing.py"),
        (["--import", "program.py", "--mac", MAC, "program.py"], "program.py is the program, which would run twice"),
        (["--import", "program", "--mac", MAC, "./program.py"], "program is the program, which would run twice"),
        (["--import", "program.py", "--mac", MAC, "-m", "program"], "program.py is the program, which would"),
        (["--mac", MAC, "missing.py"], "there is no file missing.py; with -m a module is run"),
        (["--mac", MAC, "-m", "missing.module"], "there is no module missing.module; without -m a file is run"),
        (["--mac", "e5m2*e5m2", "program.py"], "expected"),
        (["--policy", "missing.toml", "program.py"], "missing.toml"),
        (["--mac", MAC], "Missing argument 'PROGRAM'"),
        (["--mac", "", "program.py"], "the text of the unit is empty"),
        (["--mac", MAC, "-o", "missing/report.json", "program.py"], "there is no folder missing for the report"),
    ],
)
def test_bad_requests_are_refused_in_a_sentence(halfulp, script, tmp_path, monkeypatch, words, sentence):
    script()
    monkeypatch.chdir(tmp_path)
    code, out, err = halfulp("emulate", *words)
    assert (code, out) == (2, ""), err
    assert sentence in err
    assert "Traceback" not in err
