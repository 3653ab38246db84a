"""`torch.func.vmap` as a loop: vmap's own rules replace operations by others before a dispatch mode sees them."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from halfulp.golden.torch_internals import broadcast_to_tree, replaced_vmap, tree_flatten, tree_unflatten, vmap_impl


class _Loop(threading.local):
    """Running loop of a thread."""

    is_batched = False
    """True for batched gradients, of which torch computes all rows at once and then frees the graph."""
    is_last = True
    drawn: "list[dict[torch.Generator, Tensor]]"
    """States of the generators of random operations before their first use, for each running loop."""

    def __init__(self) -> None:
        self.drawn = []


_LOOP = _Loop()


def note_generator(generator: torch.Generator) -> None:
    """Note the state of a generator that a random operation is about to use."""
    for states in _LOOP.drawn:
        if generator not in states:
            states[generator] = generator.get_state()


@contextlib.contextmanager
def loops(wanted: Callable[[], bool]) -> Iterator[None]:
    """Let vmap, and batched gradients of `torch.autograd`, call a function for each index while ``wanted`` is True."""

    def chosen_flat(own: Any) -> Any:
        def run(func: Any, size: int, dims: Any, args: Any, spec: Any, out: Any, randomness: str, **named: Any) -> Any:
            # Without an index, only torch's own rules know the shapes of results.
            if not size or not wanted():
                return own(func, size, dims, args, spec, out, randomness, **named)
            return _looped(lambda *given: func(*given, **named), size, dims, args, spec, out, randomness)

        return run

    def chosen_batched(own: Any) -> Any:
        def batched(func: Any, in_dims: Any = 0, out_dims: Any = 0, allow_none_pass_through: bool = False) -> Any:
            in_torch = own(func, in_dims, out_dims, allow_none_pass_through)

            def run(*args: Any) -> Any:
                if not wanted():
                    return in_torch(*args)
                before, _LOOP.is_batched = _LOOP.is_batched, True
                try:
                    return vmap_impl(func, in_dims, out_dims, "different", None, *args)
                finally:
                    _LOOP.is_batched = before

            return run

        return batched

    def chosen_backward(own: Any) -> Any:
        def run(outputs: Any, gradients: Any, keeps: bool, *others: Any, **named: Any) -> Any:
            return own(outputs, gradients, keeps or (_LOOP.is_batched and not _LOOP.is_last), *others, **named)

        return run

    with replaced_vmap(chosen_flat, chosen_batched, chosen_backward):
        yield


def _looped(func: Any, size: int, dims: list[Any], args: list[Any], spec: Any, out_dims: Any, randomness: str) -> Any:
    """Call a function for each index of the mapped dimensions, and stack the results."""
    rows, before = [], _LOOP.is_last
    start, generators = torch.get_rng_state(), dict[torch.Generator, Tensor]()
    for index in range(size):
        if randomness == "same":
            torch.set_rng_state(start)
            for generator, state in generators.items():
                generator.set_state(state)
        given = [
            argument if dim is None else argument.select(dim, index) for argument, dim in zip(args, dims, strict=True)
        ]
        _LOOP.is_last = before and index == size - 1
        _LOOP.drawn.append(generators)
        try:
            rows.append(tree_flatten(func(*tree_unflatten(given, spec))))
        finally:
            _LOOP.is_last = before
            _LOOP.drawn.pop()
    if randomness == "error" and (generators or not torch.equal(start, torch.get_rng_state())):
        raise RuntimeError(
            "vmap with randomness='error' called a random operation; use randomness='same' or 'different'"
        )
    shape = rows[0][1]
    if any(structure != shape for _, structure in rows):
        raise ValueError("the function of a vmap returned other structures for some indices")
    flat_dims = broadcast_to_tree(out_dims, shape)
    if flat_dims is None and isinstance(out_dims, tuple) and len(out_dims) == len(rows[0][0]) == 1:
        flat_dims = list(out_dims)
    if flat_dims is None:
        raise ValueError(f"out_dims={out_dims} of a vmap has another structure than the results, {shape}")
    columns = zip(*(leaves for leaves, _ in rows), strict=True)
    return tree_unflatten([_joined(*pair) for pair in zip(columns, flat_dims, strict=True)], shape)


def _joined(results: tuple[Any, ...], dim: int | None) -> Any:
    """Stack the results of all indices; without a dimension they have to be the same."""
    first = results[0]
    # Gradients of operands that the results do not depend on are None.
    if all(result is None for result in results):
        return None
    if dim is None and not isinstance(first, Tensor):
        return first
    if not all(isinstance(result, Tensor) for result in results):
        raise ValueError(f"the function of a vmap has to return tensors, not {type(first).__name__}")
    if dim is not None:
        return torch.stack(results, dim)
    if not all(
        result is first or ((result == first) | ((result != result) & (first != first))).all() for result in results
    ):
        raise ValueError("a result of a vmap with out_dims=None has to be the same for all indices")
    return first
