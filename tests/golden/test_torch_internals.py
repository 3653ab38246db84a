"""Private names of torch: each exists and does what halfulp needs of it, and no other module has any."""

import ast
import gc
import importlib
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from halfulp.golden import torch_internals
from halfulp.golden.program import compiled
from tests.settings import ROOT

MODULE = Path(torch_internals.__file__).resolve()
ROOMS = ("hdl", "units", "golden", "sim", "boards", "fpga", "halfulp")
aten = torch.ops.aten


class _Seen(torch_internals.TorchDispatchMode):
    """Names of the operations of a program."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert isinstance(func, torch_internals.OpOverload)
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def _seen(run, context=None):
    with _Seen() as seen:
        if context is None:
            run()
        else:
            with context:
                run()
    return seen.names


def _in_backward(read):
    """Return the value of a function in a backward pass, and outside of it."""
    found = []
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda _: found.append(read()))
    y.sum().backward()
    return found[0], read()


def _operations():
    assert _seen(lambda: torch.ones(2) + 1) == ["ones", "add"]
    assert isinstance(aten.add.Tensor, torch_internals.OpOverload)


def _modes():
    with _Seen() as seen:
        assert torch_internals.current_dispatch_mode() is seen
    assert torch_internals.current_dispatch_mode() is None


def _recording():
    found = []
    make_fx(lambda x: (found.append(torch_internals.is_recording()), x + 1)[1])(torch.ones(2))
    assert (found, torch_internals.is_recording()) == ([True], False)


def _schema():
    given = torch_internals.schema(aten.add.out)
    assert [(one.name, one.is_out) for one in given.arguments][-1] == ("out", True)
    assert given.is_mutable
    assert not torch_internals.schema(aten.add.Tensor).is_mutable


def _trees():
    leaves, structure = torch_internals.tree_flatten(([1, 2], {"x": 3}))
    assert leaves == torch_internals.tree_leaves(([1, 2], {"x": 3})) == [1, 2, 3]
    assert torch_internals.tree_unflatten([4, 5, 6], structure) == ([4, 5], {"x": 6})
    assert torch_internals.tree_map(lambda x: -x, [1, (2,)]) == [-1, (-2,)]
    assert torch_internals.tree_map_only(int, lambda x: -x, [1, "2"]) == [-1, "2"]
    assert torch_internals.broadcast_to_tree(0, structure) == [0, 0, 0]
    assert torch_internals.broadcast_to_tree((0, 1, 2), structure) is None


def _strides():
    x, y = torch.ones(2, 3).t(), torch.ones(3, 1)
    assert tuple(torch_internals.result_strides(x, y.expand(3, 2))) == (x + y).stride()
    assert torch_internals.memory_format_of(torch.ones(1, 2, 3, 3)) == torch.contiguous_format
    images = torch.ones(1, 2, 3, 3).to(memory_format=torch.channels_last)
    assert torch_internals.memory_format_of(images) == torch.channels_last


def _decompositions():
    parts = torch_internals.decompositions[aten.sigmoid_backward.default]
    y = torch.rand(3)
    assert torch.allclose(parts(torch.ones(3), y), y * (1 - y))
    pooled, places = nn.functional.max_pool2d(torch.randn(1, 1, 4, 4), 2, return_indices=True)
    unpooled = torch_internals.decompositions[aten.max_unpool2d.default](pooled, places, [4, 4])
    assert torch.equal(unpooled, nn.functional.max_unpool2d(pooled, places, 2))


def _nearest():
    found = torch_internals.nearest_places(torch.ones(1, 1, 3), [6], [None], False)
    assert found[0].flatten().tolist() == [0, 0, 1, 1, 2, 2]


def _interpolation():
    of_torch = importlib.import_module("torch._decomp.decompositions")
    before = of_torch._upsample_linear, of_torch._compute_upsample_nearest_indices
    x, parts = torch.ones(1, 1, 3), torch_internals.decompositions
    with torch_internals.replaced_interpolation(lambda x, *_: x + 6, lambda *_, **__: [torch.tensor([2])]):
        assert parts[aten.upsample_linear1d.default](x, [6], False).tolist() == [[[7.0] * 3]]
        assert parts[aten.upsample_nearest1d.default](x, [6]).shape == (1, 1, 1)
    assert (of_torch._upsample_linear, of_torch._compute_upsample_nearest_indices) == before


def _backward_pass():
    inside, outside = _in_backward(torch_internals.backward_pass)
    assert inside >= 0 > outside


def _running_node():
    x = torch.ones(2, requires_grad=True)
    found = []
    number = torch_internals.next_number()
    y = x.exp()
    assert torch_internals.number_of_node(y.grad_fn) == number
    x.register_hook(lambda _: found.append(torch_internals.running_node()))
    y.register_hook(lambda _: found.append(torch_internals.running_node()))
    y.sum().backward()
    assert found[0] is y.grad_fn
    assert torch_internals.running_node() is None


def _mkldnn():
    """It works after `torch.backends.disable_global_flags`, too, and restores the setting."""
    assert torch.backends.mkldnn.enabled
    with torch_internals.without_mkldnn():
        assert not torch.backends.mkldnn.enabled
    assert torch.backends.mkldnn.enabled


def _transforms():
    found = []

    def read(x):
        found.append(
            (torch_internals.is_under_func(), torch_internals.is_under_vmap(), torch_internals.is_transformed())
        )
        return x * x

    read(torch.ones(2))
    torch.func.vmap(read)(torch.ones(2))
    torch.func.grad(read)(torch.tensor(1.0))
    with forward_ad.dual_level():
        read(torch.ones(2))
    assert found == [(False, False, False), (True, True, True), (True, False, True), (False, False, True)]


def _vmap():
    calls = []

    def through(name):
        def make(own):
            def run(*given, **named):
                calls.append(name)
                return own(*given, **named)

            return run

        return make

    def step():
        calls.clear()
        x = torch.ones(3, requires_grad=True)
        torch.func.vmap(torch.exp)(x.detach())
        y = x.exp()
        torch.autograd.grad(y, x, torch.eye(3), is_grads_batched=True, retain_graph=True)
        y.sum().backward()
        torch.autograd.functional.jacobian(torch.exp, x.detach(), vectorize=True)
        return set(calls)

    with torch_internals.replaced_vmap(*map(through, ("flat", "batched", "backward"))):
        assert step() == {"flat", "batched", "backward"}
    assert step() == set()
    assert torch.equal(torch_internals.vmap_impl(torch.exp, 0, 0, "different", None, torch.zeros(2)), torch.ones(2))


def _vmap_in_graphs():
    graphs = []

    def backend(module, inputs):
        graphs.append(str(module.graph))
        return module

    torch._dynamo.reset()
    torch.compile(torch.func.vmap(torch.exp), backend=backend)(torch.ones(2))
    assert torch_internals.VMAP_IN_GRAPH in graphs[0]


def _recurrent():
    names = []

    def make(name, own):
        def run(*given):
            names.append(name)
            return own(*given)

        return run

    x = torch.ones(2, 1, 3)
    layers = [nn.RNN(3, 3), nn.GRU(3, 3), nn.LSTM(3, 3)]
    with torch_internals.replaced_recurrent_functions(("rnn_tanh", "gru", "lstm"), make):
        for layer in layers:
            layer(x)
    layers[0](x)
    assert names == ["rnn_tanh", "gru", "lstm"]
    assert "lstm" not in vars(torch._VF)


def _scripted(x: torch.Tensor) -> torch.Tensor:
    return _negated(x)


def _negated(x):
    raise AssertionError("a script calls the function of torch")


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
def _script():
    assert torch_internals.scripted_as(torch.neg, _negated) is _negated
    assert torch.jit.script(_scripted)(torch.ones(2)).tolist() == [-1, -1]


def _modules():
    code = []

    class Layer(nn.Module):
        def forward(self, x):
            code.append(__import__("sys")._getframe(1).f_code)
            return x

    Layer()(torch.ones(1))
    assert torch_internals.CALL_OF_MODULE in code
    assert all(callable(getattr(nn.Conv2d, name)) for name in torch_internals.FORWARD)
    model = torch.compile(nn.Sequential(nn.Linear(2, 2)))
    assert [name for name, _ in model.named_modules()][-1] == f"{torch_internals.COMPILED}0"
    assert torch_internals.is_compiled(model)
    assert not torch_internals.is_compiled(nn.Linear(2, 2))


def _attributes():
    layer = nn.BatchNorm1d(2)
    torch_internals.buffers_of(layer).pop("running_mean")
    assert "running_mean" not in layer.state_dict()
    layer.register_forward_hook(hook := lambda *_: None)
    assert list(torch_internals.forward_hooks_of(layer).values()) == [hook]
    padded = nn.Conv2d(1, 1, 3, padding=(1, 2), padding_mode="circular")
    assert list(torch_internals.padding_of(padded)) == [2, 2, 1, 1]


def _state():
    class Reader(torch_internals.StateReader):
        def __init__(self):
            super().__init__()
            self.register_buffer("own", torch.ones(1))

        def accept_keys(self, prefix, missing, unexpected):
            missing.remove(f"{prefix}own")
            unexpected.remove(f"{prefix}other")

    found = nn.Sequential(Reader()).load_state_dict({"0.other": torch.ones(1)})
    assert (found.missing_keys, found.unexpected_keys) == ([], [])


def _checkpoint():
    found = []

    def region(x):
        inner, again = torch_internals.checkpoint_regions()
        found.append((len(inner), again is not None))
        return x.exp()

    for reentrant in (False, True):
        x = torch.ones(2, requires_grad=True)
        checkpoint(region, x, use_reentrant=reentrant).sum().backward()
    assert found == [(1, False), (0, True)] * 2
    assert torch_internals.checkpoint_regions() == ([], None)


def _constant():
    calls = []

    @torch_internals.constant_in_graphs
    def note():
        calls.append(torch.compiler.is_compiling())

    torch._dynamo.reset()

    def run(x):
        note()
        return x + 1

    run = torch.compile(run, backend="eager", fullgraph=True)
    run(torch.ones(2))
    run(torch.ones(2))
    assert len(calls) == 1
    assert torch_internals.is_compiler_loaded()


def _aot():
    seen = []

    def compiler(graph, _):
        seen.append([torch_internals.is_gradient_of_output(node) for node in graph.graph.nodes])

        def run(given):
            found = graph(*given)
            given.clear()
            return found

        return torch_internals.boxed(run)

    def backend(module, inputs):
        # The modules of the graph are known by their ids.
        assert any(id(one) in torch_internals.modules_of_trace() for one in [layer, layer.weight])
        made = torch_internals.aot_autograd(
            fw_compiler=compiler, bw_compiler=compiler, partition_fn=torch_internals.default_partition
        )
        return made(module, inputs)

    torch._dynamo.reset()
    layer = nn.Linear(3, 2)
    torch.compile(layer, backend=backend)(torch.ones(1, 3)).sum().backward()
    assert layer.weight.grad.tolist() == [[1.0] * 3] * 2
    assert [any(one) for one in seen] == [False, True]


def _allow_rnn():
    gc.collect()
    importlib.import_module("torch._dynamo")
    before = torch._dynamo.config.allow_rnn

    class Owner:
        pass

    first, second = Owner(), Owner()
    torch_internals.trace_recurrent_layers(first)
    torch_internals.trace_recurrent_layers(second)
    assert torch._dynamo.config.allow_rnn
    del first
    gc.collect()
    assert torch._dynamo.config.allow_rnn
    del second
    gc.collect()
    assert torch._dynamo.config.allow_rnn == before


def _names_of_operations():
    assert {"aten::add.Tensor", "aten::relu", "prims::add"} <= set(torch_internals.all_operations())


CHECKS = {
    "OpOverload": _operations,
    "TorchDispatchMode": _operations,
    "current_dispatch_mode": _modes,
    "without_dispatch_modes": lambda: _no_operations(torch_internals.without_dispatch_modes()),
    "without_dispatch": lambda: _no_operations(torch_internals.without_dispatch()),
    "is_recording": _recording,
    "schema": _schema,
    **dict.fromkeys(
        ("tree_leaves", "tree_map", "tree_map_only", "tree_flatten", "tree_unflatten", "broadcast_to_tree"), _trees
    ),
    "result_strides": _strides,
    "memory_format_of": _strides,
    "decompositions": _decompositions,
    "nearest_places": _nearest,
    "replaced_interpolation": _interpolation,
    "backward_pass": _backward_pass,
    "running_node": _running_node,
    "next_number": _running_node,
    "number_of_node": _running_node,
    "is_under_func": _transforms,
    "is_transformed": _transforms,
    "is_under_vmap": _transforms,
    "without_mkldnn": _mkldnn,
    "vmap_impl": _vmap,
    "VMAP_IN_GRAPH": _vmap_in_graphs,
    "replaced_vmap": _vmap,
    "replaced_recurrent_functions": _recurrent,
    "scripted_as": _script,
    "all_operations": _names_of_operations,
    "CALL_OF_MODULE": _modules,
    "FORWARD": _modules,
    "COMPILED": _modules,
    "is_compiled": _modules,
    "buffers_of": _attributes,
    "forward_hooks_of": _attributes,
    "padding_of": _attributes,
    "StateReader": _state,
    "checkpoint_regions": _checkpoint,
    "is_compiler_loaded": _constant,
    "constant_in_graphs": _constant,
    "aot_autograd": _aot,
    "default_partition": _aot,
    "boxed": _aot,
    "modules_of_trace": _aot,
    "is_gradient_of_output": _aot,
    "trace_recurrent_layers": _allow_rnn,
}
"""Check of each name of the module."""


def _no_operations(context):
    assert _seen(lambda: torch.ones(2).exp(), context) == []


def _names():
    """Return the names that the module has for others."""
    tree = ast.parse(MODULE.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node in tree.body:
            found.add(node.name)
    for node in tree.body:
        for one in ast.walk(node) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.If)) else ():
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store):
                found.add(one.id)
    return {one for one in found if not one.startswith("_")} - {"named", "attribute", "TESTED"}


def test_each_name_has_a_check():
    assert _names() == set(CHECKS)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CHECKS)
def test_private_name_of_torch_does_what_is_needed(name):
    CHECKS[name]()


PATHS = sorted(set(re.findall(r'"(torch[\w.]*:[\w.]+)"', MODULE.read_text())))


@pytest.mark.parametrize("path", PATHS)
def test_private_name_of_torch_exists(path):
    assert torch_internals.named(path) is not None


def test_missing_name_is_one_sentence_with_versions(monkeypatch):
    monkeypatch.delattr("torch._dynamo.backends.common.aot_autograd")
    with pytest.raises(ImportError) as caught:
        torch_internals.aot_autograd()
    text = str(caught.value)
    assert "torch._dynamo.backends.common.aot_autograd" in text
    assert torch.__version__ in text
    assert f"up to {torch_internals.TESTED}" in text
    assert "\n" not in text
    with pytest.raises(ImportError, match=r"torch .* has no Linear\._missing"):
        torch_internals.attribute(nn.Linear(1, 1), "_missing")


def test_newest_tested_version_is_that_of_the_lock():
    lock = (ROOT / ".ci" / "requirements.lock").read_text()
    assert f"torch=={torch_internals.TESTED}" in lock


def test_backend_restores_the_setting_of_recurrent_layers():
    gc.collect()
    before = torch._dynamo.config.allow_rnn
    backend = compiled.Backend("bf16*bf16+fp32.rn")
    assert torch._dynamo.config.allow_rnn
    del backend
    gc.collect()
    assert torch._dynamo.config.allow_rnn == before


# Other modules --------------------------------------------------------------------------------------------------------

OF_PYTHON = {"_fields", "_fields_", "_make", "_replace", "_asdict", "_getframe", "_base_executable"}
"""Names with an underscore that Python documents or that are those of other libraries."""


def _is_private(name):
    return name.startswith("_") and not name.endswith("__")


def _dotted(node):
    """Return the parts of a name such as ``torch.ops.aten``, from the left; none for other expressions."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []


def _own_names(trees):
    """Return the names that modules of halfulp define, also as attributes."""
    found = set(OF_PYTHON)
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                    found.add(node.attr)
    return found


def _imports(tree):
    """Return the private names of torch that a module imports, and its own names of what it imports from torch."""
    found, of_torch = [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                if one.name.split(".")[0] in ("torch", "functorch"):
                    of_torch.add(one.asname or "torch")
                    found += [one.name] * any(map(_is_private, one.name.split(".")))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in ("torch", "functorch"):
            for one in node.names:
                of_torch.add(one.asname or one.name)
                path = f"{node.module}.{one.name}"
                found += [path] * any(map(_is_private, path.split(".")))
    return found, of_torch


def _private_names(tree, own):
    """Return the private names of torch in a module: imports, attributes, and texts for `getattr` and patches."""
    found, of_torch = _imports(tree)
    if not of_torch:
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            parts = _dotted(node)
            # Operations of torch are public by the graphs and the dispatch modes that show them.
            if parts[:2] == ["torch", "ops"] or parts[:1] == ["aten"]:
                continue
            private = _is_private(node.attr) and ((parts and parts[0] in of_torch) or node.attr not in own)
            found += [".".join(parts) or node.attr] * bool(private)
        elif isinstance(node, ast.Call):
            called = (_dotted(node.func) or [""])[-1]
            if called in ("getattr", "setattr", "delattr", "hasattr", "object", "methodcaller", "attrgetter"):
                texts = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
                found += [one for one in texts if _is_private(one) and one not in own]
    return found


def _modules_of_halfulp():
    files = {path.resolve() for room in ROOMS for path in (ROOT / room).rglob("*.py") if "build" not in path.parts}
    return {path: ast.parse(path.read_text()) for path in files - {MODULE}}


def test_private_names_of_torch_stand_in_one_module():
    modules = _modules_of_halfulp()
    assert len(modules) > 200
    own = _own_names(modules.values())
    found = {str(path.relative_to(ROOT)): _private_names(tree, own) for path, tree in modules.items()}
    assert {path: names for path, names in found.items() if names} == {}


@pytest.mark.slow
@pytest.mark.sampled(10, 2)
@pytest.mark.parametrize(
    "text",
    [
        "import torch._dynamo",
        "from torch._ops import OpOverload",
        "from torch.utils._pytree import tree_map",
        "from torch.nn.modules.conv import _ConvNd",
        "import torch\ntorch._C._set_mkldnn_enabled(False)",
        "from torch.autograd import forward_ad\nforward_ad._current_level",
        "from torch import nn\ndef f(layer):\n    return layer._forward_hooks",
        "from torch import nn\nclass A(nn.Module):\n    def f(self):\n        return self._buffers",
        "import torch\nsetattr(torch, '_VF', 1)",
        "import torch\nfrom unittest import mock\nmock.patch.object(torch, '_engine_run_backward', 1)",
    ],
)
def test_private_name_of_torch_is_found(text):
    assert _private_names(ast.parse(text), _own_names(_modules_of_halfulp().values()))
