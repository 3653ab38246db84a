"""A context in which every operation of torch is computed in the arithmetic of a policy."""

import contextlib
import fnmatch
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._C._autograd import _get_sequence_nr
from torch._decomp import decomposition_table
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import module as hooks
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from halfulp.golden.nn.draw import check_seed, mix
from halfulp.golden.nn.policy import Policy
from halfulp.golden.nn.recompute import repeats
from halfulp.golden.nn.swap import Rules

from .operations import EXACT, HANDLERS
from .report import ELEMENTWISE, Report, is_real
from .site import UPDATE, Place, Site, address

_HERE = (Path(__file__), Path(__file__).resolve())
_OURS = (str(Path(torch.__file__).parent), *(str(path.parents[1]) for path in _HERE), "<eval", "<frozen")
"""Path prefixes of files outside the emulated program."""

PLACES = 1 << 18
"""Number of forward operations whose places are remembered for backward passes."""


class emulate(contextlib.ContextDecorator):
    """Compute every operation of torch code in the arithmetic of a policy: forward, backward and optimiser.

    As a context manager or a decorator; the code inside is that of any library, unchanged.

    Parameters
    ----------
    policy : Policy, MacSpec, str, or mapping
        One policy for all operations, such as ``"bf16*bf16+fp32.rn, elementwise=bf16.rn"``, or policies by patterns of
        module names and of operations such as ``"aten.exp"``; the first match counts, and operations without a match
        stay in torch's own arithmetic. Parts of a composition, such as softmax, are matched by their own names.
    strict : bool
        Raise RuntimeError for an operation that would be computed in torch's own arithmetic.
    seed : int
        Seed of the random words of stochastic rounding; equal seeds give equal words in equal programs.
    values : bool
        Count zeros, infinities and NaN among the results.

    Raises
    ------
    TypeError, ValueError
        If the policy or the seed is invalid.

    Notes
    -----
    Matrix products and convolutions have the order and the bits of `halfulp.golden.gemm`. Element-wise operations round
    their operands to the format, and their exact result once. Functions are correctly rounded in formats of up to 16
    bits; in wider formats a result in binary64, with an error of a few ulp of binary64, is rounded. Sums start from the
    first element. Compositions, such as softmax or a normalisation, are computed as torch decomposes them, and each
    part is rounded. Data movement, comparisons, random numbers and conversions between types of torch stay as they are.
    Attention and recurrent cells run as separate operations, without fused kernels and oneDNN. Other threads are not
    emulated.
    """

    def __init__(self, policy: Rules, *, strict: bool = False, seed: int = 0, values: bool = False) -> None:
        given = policy if isinstance(policy, Mapping) else {"*": policy}
        for pattern in given:
            if not isinstance(pattern, str):
                raise TypeError(f"policies are named by patterns of modules or operations, not by {pattern!r}")
        self.policies = {pattern: Policy.parse(one) for pattern, one in given.items()}
        self.strict, self.seed, self.values = strict, check_seed(seed), values
        self._report = Report()
        self._stacks: list[contextlib.ExitStack] = []
        self._mode = _Mode(self)

    def report(self) -> Report:
        """Return the report of all operations that ran in the context."""
        return self._report

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            if not self._stacks:
                stack.enter_context(_composite())
                stack.enter_context(self._mode.tracking())
            stack.enter_context(self._mode)
            self._stacks.append(stack.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._stacks.pop().__exit__(*error)

    def policy_for(self, module: str, operation: str) -> Policy | None:
        """Return the policy of an operation at a module, or None if no pattern names it."""
        for pattern, policy in self.policies.items():
            name = f"aten.{operation}" if pattern.startswith("aten.") else module
            if fnmatch.fnmatchcase(name, pattern):
                return policy
        return None


@contextlib.contextmanager
def _composite() -> Iterator[None]:
    """Turn off fused kernels of attention, encoders and recurrent cells, which a dispatch mode does not see."""
    fast_path, onednn = torch.backends.mha.get_fastpath_enabled(), torch._C._get_mkldnn_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    torch._C._set_mkldnn_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
        torch._C._set_mkldnn_enabled(onednn)


class _Mode(TorchDispatchMode):
    """Dispatch of all operations below autograd."""

    def __init__(self, owner: emulate) -> None:
        super().__init__()
        self.owner = owner
        self.calls = 0
        self.modules: list[str] = []
        self.names: dict[int, str] = {}
        self.updating = False
        self.places: dict[int, Place] = {}
        self.parameters: dict[int, int] = {}
        self.repeated: dict[int, int | None] = {}

    @contextlib.contextmanager
    def tracking(self) -> Iterator[None]:
        """Track running modules and optimiser steps of this thread."""
        thread = threading.get_ident()

        def enter(module: nn.Module, _: Any) -> None:
            if threading.get_ident() == thread:
                if not self.modules:
                    # A compiled module has the module itself as a part.
                    self.names = {id(one): name.replace("_orig_mod.", "") for name, one in module.named_modules()}
                self.modules.append(self.names.get(id(module), type(module).__name__))

        def leave(*_: Any) -> None:
            if threading.get_ident() == thread and self.modules:
                self.modules.pop()

        def begin(*_: Any) -> None:
            self.updating = True

        def end(*_: Any) -> None:
            self.updating = False

        handles = [
            hooks.register_module_forward_pre_hook(enter),
            hooks.register_module_forward_hook(leave, always_call=True),
            register_optimizer_step_pre_hook(begin),
            register_optimizer_step_post_hook(end),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            self.modules, self.updating = [], False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func.overloadpacket.__name__
        in_place = name.endswith("_") and not name.endswith("__")
        base = name.removesuffix("_") if in_place else name
        self._note_parameters(args)
        if func.is_view or base in EXACT or name in EXACT:
            return func(*args, **kwargs)
        if not any(is_real(one) for one in tree_leaves((args, kwargs))):
            found = func(*args, **kwargs)
            # Integers may have real results, such as quotients.
            if base not in HANDLERS or not is_real(found):
                return found
        if base.startswith("_foreach_"):
            return self._each(func, base.removeprefix("_foreach_"), in_place, args, kwargs)
        out = kwargs.pop("out", None)
        found = self._computed(func, base, in_place, args, kwargs)
        if isinstance(found, Tensor) and torch._C._current_autograd_node() is not None and self._node() is None:
            self.repeated.setdefault(address(found), None)
        if found is NotImplemented:
            if out is not None:
                kwargs["out"] = out
            return self._in_torch(func, base, args, kwargs)
        if in_place and found is not args[0]:
            args[0].copy_(found)
            return args[0]
        if out is not None:
            return out.resize_(found.shape).copy_(found)
        return found

    def _computed(self, func: Any, base: str, in_place: bool, args: Any, kwargs: Any) -> Any:
        """Compute an operation by its function or its decomposition; NotImplemented without either."""
        site = self._site(base)
        if site is None or (site.phase == UPDATE and site.policy.optimizer is None):
            return NotImplemented
        if base in HANDLERS and func.namespace in ("aten", "prims"):
            found = HANDLERS[base](site, *args, **kwargs)
            if found is not NotImplemented:
                return found
        functional = _functional(func, base) if in_place else func
        decomposed = decomposition_table.get(functional)
        with self:
            if decomposed is not None:
                return decomposed(*args, **kwargs)
            return func.decompose(*args, **kwargs) if func.has_kernel_for_dispatch_key(_COMPOSITE) else NotImplemented

    def _in_torch(self, func: Any, base: str, args: Any, kwargs: Any) -> Any:
        """Compute an operation in torch's own arithmetic, and count it."""
        started = time.perf_counter()
        site = self._site(base)
        phase = self._phase()
        if site is None:
            reason = "no pattern of the policies names it"
        elif phase == UPDATE and site.policy.optimizer is None:
            reason = "the policy names no optimizer"
        else:
            reason = f"halfulp does not emulate {func.namespace}.{base}"
        where = {"operation": base, "kind": ELEMENTWISE, "arithmetic": "fp32", "reason": reason}
        place = self._place()
        where |= {"module": place.module, "source": place.source, "phase": phase}
        self._refuse(where)
        found = func(*args, **kwargs)
        result = next((one for one in tree_leaves(found) if is_real(one)), None)
        if result is not None:
            self._add(where, {"elements": result.numel()}, result, time.perf_counter() - started)
        return found

    def _each(self, func: Any, base: str, in_place: bool, args: Any, kwargs: Any) -> Any:
        """Compute an operation on lists of tensors, one after the other."""
        packet = getattr(torch.ops.aten, base + "_" * in_place, None)
        if packet is None:
            return self._in_torch(func, f"_foreach_{base}", args, kwargs)
        if base in ("addcmul", "addcdiv") and len(args) > 3:
            # Only in lists this factor has no name.
            *args, kwargs["value"] = args
        found = []
        for place in range(len(args[0])):
            one = [_item(given, place) for given in args]
            with self:
                found.append(packet(*one, **{name: _item(given, place) for name, given in kwargs.items()}))
        return None if in_place else found

    def _phase(self) -> str:
        if self.updating:
            return UPDATE
        return "backward" if self._node() is not None else "forward"

    def _node(self) -> Any:
        """Return the running node of autograd; None in forward passes and in recomputed regions."""
        node = torch._C._current_autograd_node()
        return None if node is None or self.modules or repeats() else node

    def _place(self) -> Place:
        node = self._node()
        if node is not None and (known := self.places.get(node._sequence_nr())):
            return known
        module = self.modules[-1] if self.modules else ""
        self.calls += 1
        return Place(module, _source(), mix(self.owner.seed, self.calls))

    def _site(self, base: str) -> Site | None:
        place, node = self._place(), self._node()
        policy = self.owner.policy_for(place.module, base)
        if policy is None:
            return None
        if node is None:
            if len(self.places) > PLACES:
                self.places = dict(list(self.places.items())[PLACES // 2 :])
            # Autograd numbers an operation before it runs; operations without gradients follow under the same number.
            self.places.setdefault(_get_sequence_nr() - 1, place)
        self.calls += 1
        key = mix(self.owner.seed, self.calls, 1)
        return Site(policy, base, self._phase(), place, node, key, self._record, self._is_weight, self.repeated)

    def _record(self, where: dict[str, str], counts: dict[str, int], result: Tensor, seconds: float) -> None:
        self._refuse(where)
        self._add(where, counts, result, seconds)

    def _refuse(self, where: Mapping[str, str]) -> None:
        if self.owner.strict and where["arithmetic"] == "fp32":
            raise RuntimeError(
                f"{where['operation']} at {where['source']} would be computed in torch's own arithmetic: "
                f"{where['reason']}"
            )

    def _add(self, where: dict[str, str], counts: dict[str, int], result: Tensor, seconds: float) -> None:
        self.owner._report.add(where, counts, result if self.owner.values else None, seconds)

    def _note_parameters(self, args: Any) -> None:
        for one in args:
            if isinstance(one, nn.Parameter):
                self.parameters[one.untyped_storage().data_ptr()] = one.untyped_storage().nbytes()

    def _is_weight(self, x: Tensor) -> bool:
        storage = x.untyped_storage()
        return self.parameters.get(storage.data_ptr()) == storage.nbytes()


def _item(given: Any, place: int) -> Any:
    return given[place] if isinstance(given, (list, tuple)) else given


_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd


def _functional(func: Any, base: str) -> Any:
    """Return the variant of an operation that changes no operand."""
    packet = getattr(torch.ops.aten, base, None)
    return getattr(packet, func._overloadname, None) if packet is not None else None


def _source() -> str:
    """Return file and line of the program that called torch."""
    frame = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(_OURS):
            return f"{Path(path).name}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]  # None at the bottom of the stack
    return ""
