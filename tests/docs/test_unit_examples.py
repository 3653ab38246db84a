"""Examples on the pages of units: they run as they are, and their results are those of exact arithmetic."""

import doctest
import os
import re
import shlex
import subprocess
import sys

import pytest
import torch

from halfulp import unit
from halfulp.hdl.formats import parse
from halfulp.units.catalogue import CATALOGUE, COMPOSED, component
from halfulp.units.verilog import emit
from tests.docs.test_pages import page_module
from tests.settings import ROOT

generate = page_module("generate")
unit_examples = page_module("unit_examples")
SPECS = {str(spec): spec for spec in (generate._example(row).spec for row in CATALOGUE.values())}
SPECS |= {str(spec): spec for spec in (cls.filled(a=parse("bf16")) for cls in COMPOSED)}


def numbers(result):
    """Return the numbers of a result, which may be a tensor, a tuple, an int, or a sequence of them."""
    if isinstance(result, torch.Tensor):
        return [float(value) for value in result.flatten()]
    return [number for part in result for number in numbers(part)] if isinstance(result, (tuple, list)) else [result]


def blocks(text, language):
    """Return the blocks of a language in the example of a unit."""
    page = "\n".join(unit_examples.section(SPECS[text]))
    return re.findall(rf"^```{language}\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("text", SPECS)
def test_session_on_a_page_runs_and_is_exact(text):
    (session,) = blocks(text, "pycon")
    names, report = {}, []
    test = doctest.DocTestParser().get_doctest(session, names, text, text, 0)
    assert doctest.DocTestRunner().run(test, out=report.append, clear_globs=False).failed == 0, "".join(report)
    call = re.search(r"unit\(.*?\"\)\.reference\((?:[^()]|\([^()]*\))*\)", session)[0]
    found = eval(call, dict(test.globs))
    codes = {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in test.globs.items()}
    exact = eval(call.replace(".reference(", ".exact(").replace("torch.tensor", ""), codes)
    assert numbers(found) == numbers(exact)
    # Results of single numbers are single numbers.
    vectors = [name for name, value in codes.items() if isinstance(value, list)]
    assert vectors or not isinstance(found, torch.Tensor) or found.dim() == 0


@pytest.mark.parametrize("text", SPECS)
def test_commands_on_a_page_name_the_unit(text):
    (commands,) = blocks(text, "sh")
    lines = [shlex.split(line) for line in commands.splitlines()]
    assert [line[:2] for line in lines] == [["halfulp", "sim"], ["halfulp", "emit"]]
    assert {str(unit(line[2])) for line in lines} == {text}


@pytest.mark.slow
@pytest.mark.sampled(12, 3)
@pytest.mark.parametrize("text", SPECS)
def test_commands_on_a_page_run(text, tmp_path):
    (commands,) = blocks(text, "sh")
    for line in commands.splitlines():
        command = [sys.executable, "-m", *shlex.split(line)]
        assert subprocess.run(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}).returncode == 0
    assert list(tmp_path.glob("*.v"))


@pytest.mark.parametrize("cls", COMPOSED.values(), ids=lambda cls: cls.__name__)
def test_page_of_composed_unit_has_the_ports_of_the_module(cls):
    page = "\n".join(generate._composed(cls))
    unit = component(cls.SPEC.filled(a=parse("bf16")))
    module, ports = re.search(r"^module (\w+)\(([^)]*)\)", emit(unit), re.MULTILINE).groups()
    instance = re.search(r"```verilog\n(.*?)```", page, re.DOTALL)[1]
    assert instance.startswith(f"{module} unit (")
    assert sorted(re.findall(r"\.(\w+)\(", instance)) == sorted(re.findall(r"\w+", ports))
    rows = re.findall(r"^\| (.*) \| (?:in|out)put \|", page, re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(re.findall(r"\w+", ports))
