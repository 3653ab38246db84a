"""Private names of torch, each with its use. All other modules take them from here.

Any version of torch may change them. A missing one is an ImportError that names the version, as the module or a name is
first used.
"""

import contextlib
import functools
import importlib
import operator
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
import torch.utils.checkpoint
from torch import Tensor, nn
from torch.autograd import forward_ad

TESTED = "2.13.0"
"""Newest version of torch with which the tests run."""

if TYPE_CHECKING:
    from torch._ops import OpOverload as OpOverload  # noqa: PLC0414  # exported
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode  # noqa: PLC0414  # exported


def _missing(name: str) -> ImportError:
    return ImportError(
        f"torch {torch.__version__} has no {name}, which halfulp needs; halfulp is tested with torch up to {TESTED}"
    )


def named(path: str) -> Any:
    """Return an object of torch by module and name, such as ``torch._ops:OpOverload``; ImportError without it."""
    module, _, name = path.partition(":")
    try:
        return operator.attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise _missing(f"{module}.{name}") from error


def attribute(owner: Any, name: str) -> Any:
    """Return a private attribute of an object of torch; ImportError without it."""
    try:
        return getattr(owner, name)
    except AttributeError as error:
        raise _missing(f"{type(owner).__name__}.{name}") from error


def _replaced(path: str, make: Callable[[Any], Any]) -> Any:
    """Return a context in which a function of torch is the one that ``make`` returns for it."""
    module, _, name = path.partition(":")
    return mock.patch.object(importlib.import_module(module), name, make(named(path)))


# Operations and dispatch ----------------------------------------------------------------------------------------------

if not TYPE_CHECKING:
    OpOverload = named("torch._ops:OpOverload")
    """Class of the operations that a dispatch mode sees and that graphs hold."""

    TorchDispatchMode = named("torch.utils._python_dispatch:TorchDispatchMode")
    """Base class of modes that see every operation below autograd."""

current_dispatch_mode: Callable[[], Any] = named("torch.utils._python_dispatch:_get_current_dispatch_mode")
"""Return the innermost dispatch mode, which decides if a replaced function of torch computes in a policy."""

without_dispatch_modes: Callable[[], Any] = named("torch.utils._python_dispatch:_disable_current_modes")
"""Context and decorator for computations that are no part of an emulated program, such as loss scaling."""

without_dispatch: Callable[[], Any] = named("torch._C:_DisableTorchDispatch")
"""Context for the kernels of a whole recurrent layer; it costs less for a call than `without_dispatch_modes`."""

_mode_of_kind = named("torch._C:_get_dispatch_mode")
_RECORDING = named("torch._C:_TorchDispatchModeKey.PROXY")


def is_recording() -> bool:
    """Return True while make_fx records operations, whose values an emulated program would need."""
    return _mode_of_kind(_RECORDING) is not None


def schema(func: "OpOverload") -> Any:
    """Return the schema of an operation: its arguments, and if it changes one of them."""
    return attribute(func, "_schema")


all_operations: Callable[[], list[str]] = named("torch._C:_dispatch_get_all_op_names")
"""Return the names of all operations, also of other libraries, such as ``aten::add.Tensor``."""

tree_leaves: Callable[..., list[Any]] = named("torch.utils._pytree:tree_leaves")
"""Return the tensors and numbers in the nested arguments of an operation."""

tree_map: Callable[..., Any] = named("torch.utils._pytree:tree_map")
"""Apply a function to these."""

tree_map_only: Callable[..., Any] = named("torch.utils._pytree:tree_map_only")
"""Apply a function to those of a type."""

tree_flatten: Callable[[Any], tuple[list[Any], Any]] = named("torch.utils._pytree:tree_flatten")
"""Split the results of a function under vmap into tensors and their structure."""

tree_unflatten: Callable[[Any, Any], Any] = named("torch.utils._pytree:tree_unflatten")
"""Put them together again."""

broadcast_to_tree: Callable[[Any, Any], list[Any] | None] = named("torch.utils._pytree:_broadcast_to_and_flatten")
"""Return one dimension for each result of a function under vmap, from ``out_dims``; None if the structures differ."""

result_strides: Callable[..., Any] = named("torch._prims_common:compute_elementwise_output_strides")
"""Return the strides that torch gives to the result of an element-wise operation."""

memory_format_of: Callable[[Tensor], torch.memory_format] = named("torch._prims_common:suggest_memory_format")
"""Return the memory format that torch's compositions give to the result of an operation on images."""


# Compositions ---------------------------------------------------------------------------------------------------------

decompositions: dict[Any, Callable[..., Any]] = named("torch._decomp:decomposition_table")
"""Functions of torch that compute an operation as several others; each of these is rounded."""

nearest_places: Callable[..., list[Tensor]] = named("torch._decomp.decompositions:_compute_upsample_nearest_indices")
"""Return the indices of the nearest pixels, as torch's own composition of interpolation computes them."""


@contextlib.contextmanager
def replaced_interpolation(linear: Callable[..., Any], nearest: Callable[..., Any]) -> Iterator[None]:
    """Replace the functions by which torch.compile decomposes interpolation before autograd, without any table."""
    with (
        _replaced("torch._decomp.decompositions:_upsample_linear", lambda _: linear),
        _replaced("torch._decomp.decompositions:_compute_upsample_nearest_indices", lambda _: nearest),
    ):
        yield


# Autograd and torch.func ----------------------------------------------------------------------------------------------

backward_pass: Callable[[], int] = named("torch._C:_current_graph_task_id")
"""Return the number of the running backward pass, -1 outside; a recomputed region takes the values of its first one."""

running_node: Callable[[], Any] = named("torch._C:_current_autograd_node")
"""Return the node of autograd that runs now, from which an operation of a backward pass is known; None without one."""

next_number: Callable[[], int] = named("torch._C._autograd:_get_sequence_nr")
"""Return the number that autograd gives to the next operation, by which a backward operation finds its forward one."""


def number_of_node(node: Any) -> int:
    """Return the number that autograd has given to the forward operation of a node."""
    number: int = attribute(node, "_sequence_nr")()
    return number


is_under_func: Callable[[], bool] = named("torch._C:_are_functorch_transforms_active")
"""Return True in transforms of torch.func, in which some operations are decomposed."""

named("torch.autograd.forward_ad:_current_level")


def is_transformed() -> bool:
    """Return True in transforms of torch.func and in forward-mode differentiation, whose derivatives operators lose."""
    return is_under_func() or forward_ad._current_level >= 0


_interpreters = named("torch._functorch.pyfunctorch:retrieve_all_functorch_interpreters")
_VMAP = named("torch._C._functorch:TransformType.Vmap")


def is_under_vmap() -> bool:
    """Return True in a vmap, which replaces operations before a dispatch mode sees them."""
    return any(interpreter.key() == _VMAP for interpreter in _interpreters())


_set_mkldnn = named("torch._C:_set_mkldnn_enabled")


@contextlib.contextmanager
def without_mkldnn() -> Iterator[None]:
    """Turn off the layers of oneDNN; the public setting refuses that if a program has frozen its flags."""
    before = torch.backends.mkldnn.enabled
    _set_mkldnn(False)
    try:
        yield
    finally:
        _set_mkldnn(before)


vmap_impl: Callable[..., Any] = named("torch._functorch.vmap:vmap_impl")
"""Body of `torch.func.vmap`, which computes batched gradients as a loop."""

VMAP_IN_GRAPH = "_vmap_increment_nesting"
"""Name of the operation with which the body of a vmap begins in a graph of torch.compile."""


@contextlib.contextmanager
def replaced_vmap(
    flat: Callable[[Any], Any], batched: Callable[[Any], Any], backward: Callable[[Any], Any]
) -> Iterator[None]:
    """Replace vmap, the vmap of batched gradients, and the start of backward passes.

    Each argument returns the replacement of torch's own function.
    """
    with (
        _replaced("torch._functorch.vmap:_flat_vmap", flat),
        _replaced("torch.autograd.functional:_vmap", batched),
        _replaced("torch._vmap_internals:_vmap", batched),
        _replaced("torch.autograd:_engine_run_backward", backward),
    ):
        yield


@contextlib.contextmanager
def replaced_recurrent_functions(
    names: Iterable[str], make: Callable[[str, Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """Replace the functions of recurrent layers, such as ``lstm``, by those that ``make`` returns for them."""
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(_replaced(f"torch._VF:{name}", functools.partial(make, name)))
        yield


_builtins_of_script: Callable[[], dict[int, str]] = named("torch.jit._builtins:_get_builtin_table")


def scripted_as(original: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Let torch.jit.script compile calls of a function as calls of the function of torch that it replaces.

    The table of torch has the id of the function, which therefore has to exist until the end of the process.
    """
    table = _builtins_of_script()
    table[id(function)] = table[id(original)]
    return function


# Modules --------------------------------------------------------------------------------------------------------------

CALL_OF_MODULE: CodeType = named("torch.nn:Module._call_impl").__code__
"""Code of the call of a module, whose frames on the stack have the running modules."""

FORWARD = ("forward", "_conv_forward")
"""Methods of layers that compute; a subclass that replaces one has arithmetic of its own."""

COMPILED = "_orig_mod."
"""Prefix of the names of the modules in a compiled module."""


def buffers_of(module: nn.Module) -> dict[str, Any]:
    """Return the buffers of a module by name; a layer adds and removes those of its state."""
    buffers: dict[str, Any] = attribute(module, "_buffers")
    return buffers


def forward_hooks_of(module: nn.Module) -> dict[int, Any]:
    """Return the forward hooks of a module by key; a hook removes itself, also in a copy of the module."""
    hooks: dict[int, Any] = attribute(module, "_forward_hooks")
    return hooks


def padding_of(layer: nn.Conv2d) -> Any:
    """Return the padding that torch made with a layer: left, right, above and below."""
    return attribute(layer, "_reversed_padding_repeated_twice")


class StateReader(nn.Module):
    """Module that decides on the entries that a state dict has too few or too many."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *others)
        _, _, missing_keys, unexpected_keys, _ = others
        self.accept_keys(prefix, missing_keys, unexpected_keys)

    def accept_keys(self, prefix: str, missing: list[str], unexpected: list[str]) -> None:
        """Remove the keys that are no errors; ``prefix`` begins those of the module."""


named("torch.nn:Module._load_from_state_dict")

_CHECKPOINT = torch.utils.checkpoint.__file__
_BACKWARD: CodeType = named("torch.autograd.graph:_engine_run_backward").__code__


def checkpoint_regions() -> tuple[list[Any], Any]:
    """Return the regions of `torch.utils.checkpoint` in their first pass, and the enclosing one that is recomputed.

    The innermost is first; None without a recomputed one. torch has no interface to the running regions; they are found
    on the call stack, by the names of functions and variables of torch.
    """
    inner: list[Any] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _BACKWARD:
            # A backward pass inside of a region that calls it after its recomputation.
            return inner, None
        if frame.f_code.co_filename == _CHECKPOINT:
            name, held = frame.f_code.co_name, frame.f_locals
            if name == "unpack_hook":
                return inner, held.get("frame")
            if name == "backward":
                return inner, held.get("ctx")
            # checkpoint_sequential also has functions named forward.
            if name == "forward" and "ctx" in held:
                inner.append(held["ctx"])
            elif name == "checkpoint" and getattr(held.get("gen"), "gi_frame", None):
                inner.append(held["gen"].gi_frame.f_locals["new_frame"])
        frame = frame.f_back
    return inner, None


# torch.compile, which takes long to load: names are found as they are used --------------------------------------------


def is_compiler_loaded() -> bool:
    """Return True if torch.compile is in memory; without it, no program is compiled."""
    return "torch._dynamo" in sys.modules


def constant_in_graphs(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let torch.compile call a function while it makes a graph, instead of compiling it.

    `torch.compiler.assume_constant_result` sets the same attribute, but loads the compiler.
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch.compile reads it
    return function


def aot_autograd(**parts: Any) -> Callable[..., Any]:
    """Return a compiler of the graphs of torch.compile from compilers of graphs of operations, forward and backward."""
    made: Callable[..., Any] = named("torch._dynamo.backends.common:aot_autograd")(**parts)
    return made


def default_partition(*given: Any, **parts: Any) -> Any:
    """Split a joint graph into forward and backward pass, as `aot_autograd` asks for."""
    return named("torch._functorch.partitioners:default_partition")(*given, **parts)


def boxed(run: Callable[[list[Any]], Any]) -> Callable[[list[Any]], Any]:
    """Mark a compiled graph whose arguments are one list, from which it frees each after its last use."""
    run._boxed_call = True  # type: ignore[attr-defined]  # AOT autograd reads it
    return run


def is_compiled(module: nn.Module) -> bool:
    """Return True for a module that torch.compile returns around another one, which is no module of the program."""
    return is_compiler_loaded() and isinstance(module, named("torch._dynamo.eval_frame:OptimizedModule"))


def modules_of_trace() -> dict[int, Any]:
    """Return the variables of the graph that torch.compile makes now, by id, which is its name for a module."""
    translator = named("torch._dynamo.symbolic_convert:InstructionTranslator").current_tx()
    variables: dict[int, Any] = attribute(attribute(translator, "output"), "side_effects").id_to_variable
    return variables


def is_gradient_of_output(node: Any) -> bool:
    """Return True for an input of a graph that is the gradient of a result; all else follows from forward values."""
    return "TangentAOTInput" in type(node.meta.get("desc")).__name__


class _Recurrent:
    """Setting of torch.compile that all its users share."""

    lock = threading.RLock()
    # The end of an owner may come inside of the lock, from the collection of garbage.
    users = 0
    restore = contextlib.ExitStack()


def trace_recurrent_layers(owner: Any) -> None:
    """Let torch.compile trace recurrent layers while ``owner``, a backend, or another one exists.

    Otherwise it leaves out functions that begin with a recurrent layer, and does not call the backend. It reads the
    setting before it calls a backend, which therefore cannot set it for its own graphs only.
    """
    named("torch._dynamo.config:allow_rnn")
    with _Recurrent.lock:
        if not _Recurrent.users:
            _Recurrent.restore.enter_context(named("torch._dynamo.config:patch")(allow_rnn=True))
        _Recurrent.users += 1
    weakref.finalize(owner, _end_recurrent)


def _end_recurrent() -> None:
    with _Recurrent.lock:
        _Recurrent.users -= 1
        if not _Recurrent.users:
            _Recurrent.restore.close()
