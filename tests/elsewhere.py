"""Stand-in for a GPU: tensors that report another device than the CPU, and compute on the CPU.

Operations that mix devices raise an error, and the memory of such tensors has no address, so that a kernel for the CPU
cannot read it. The name of the device is that of meta tensors, the only other one that every build of torch knows.
"""

import functools
from unittest import mock

import torch
from torch._library.custom_ops import OPDEFS
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

DEVICE = torch.device("meta")

MIXING = {"copy_", "_to_copy", "index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that take tensors of the CPU too."""


class Elsewhere(torch.Tensor):
    """Tensor of the device."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held):
        self.held = held

    def item(self):
        return self.held.item()

    def tolist(self):
        return self.held.tolist()

    def __bool__(self):
        return bool(self.held)

    def __int__(self):
        return int(self.held)

    def __float__(self):
        return float(self.held)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class Device(TorchDispatchMode):
    """Context in which tensors can be made on the device."""

    def __enter__(self):
        # The modes of torch do not see this function.
        self.patch = mock.patch("torch.tensor", functools.partial(_tensor, torch.tensor))
        self.patch.start()
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.patch.stop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "halfulp":
            with Device():
                return OPDEFS[func._schema.name]._backend_fns[None](*args, **kwargs)
        return _run(func, args, kwargs)


def _tensor(make, data, *, device=None, **options):
    made = make(data, **options)
    return made if device is None else made.to(device)


def _run(func, args, kwargs):
    """Compute an operation on the CPU."""
    given = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
    here = [one for one in given if isinstance(one, Elsewhere)]
    name = func._schema.name.split("::")[1]
    if here and name not in MIXING:
        mixed = [one for one in given if one.dim() and not isinstance(one, Elsewhere)]
        assert not mixed, f"{name} takes tensors of two devices"
    target = kwargs.get("device")
    there = bool(here) if target is None else torch.device(target).type == DEVICE.type
    if name in {"copy_", "index_put_"}:
        there = isinstance(args[0], Elsewhere)
    if name == "_to_copy" or target is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    inner = {id(one.held): one for one in here}
    found = func(*tree_map(_held, args), **tree_map(_held, kwargs))

    def wrapped(one):
        if not isinstance(one, torch.Tensor) or not there:
            return one
        return inner.get(id(one)) if id(one) in inner else Elsewhere(one)

    return tree_map(wrapped, found)


def _held(one):
    return one.held if isinstance(one, Elsewhere) else one
