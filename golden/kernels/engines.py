"""Engines of compiled kernels: vector lanes that are proved exact for a description, 128-bit integers, and Triton."""

import ctypes
from abc import ABC, abstractmethod
from dataclasses import replace

from halfulp.hdl.specs import MacSpec

from . import build, exact, gpu, plan
from .job import Engine, MatrixProduct
from .lane import Refused
from .launch import Matrices, call, gathered
from .text import PHILOX

IN_TORCH, STEP_IN_TORCH, IN_EXACT = 0.5e-6, 0.3e-3, 0.1e-6
"""Seconds for a multiply-accumulate in torch, for a step of all sums in torch, and for one in the general kernel."""

SMALL = "it is not worth its compilation for a product of this size"
SEVERAL = "a step has several products"
CODES_ONLY = "it takes codes, not real numbers"
CPU_ONLY = "it takes matrices on the CPU"


def counted(job: MatrixProduct) -> str | None:
    """Return the name of the counter-based source of a job; None if it has none."""
    return None if job.words.key is None else PHILOX


class Compiled(ABC):
    """Engine of a kernel that is compiled for the processor; see `Engine`."""

    name: str

    def refuses(self, job: MatrixProduct) -> str | None:
        """Return the reason why the kernel does not compute a job."""
        if build.level() == "torch":
            return f"{build.SETTING}=torch disables kernels"
        if job.device != "cpu":
            return CPU_ONLY
        if not job.work:
            return "there is nothing to add"
        if reason := self.misfit(job):
            return reason
        return None if build.is_worth(*self.kernel(job), self.seconds(job)) else SMALL

    def run(self, job: MatrixProduct) -> Matrices:
        """Compute a job; raise `Refused` if the kernel is not exact for its operands."""
        library = build.library(*self.kernel(job), self.seconds(job))
        if library is None:
            raise Refused("it does not compile")
        result = self.called(library, job)
        if result is None:
            raise Refused("it is not exact for these operands")
        return result

    @abstractmethod
    def misfit(self, job: MatrixProduct) -> str | None:
        """Return the reason why the description does not fit the kernel."""

    @abstractmethod
    def kernel(self, job: MatrixProduct) -> tuple[str, str]:
        """Return the beginning of the name of its files, and its C++ source."""

    @abstractmethod
    def seconds(self, job: MatrixProduct) -> float:
        """Return the time of a job without the kernel."""

    @abstractmethod
    def called(self, library: ctypes.CDLL, job: MatrixProduct) -> Matrices | None:
        """Return the result of the kernel; None if it refuses the operands."""


class Lanes(Compiled):
    """Kernel of a description with vector lanes of one type, ``Fixed`` or ``Float``, and a number of bits."""

    def __init__(self, family: str, bits: int) -> None:
        self.family, self.bits = family, bits
        self.name = f"lanes of {'integers' if family == 'Fixed' else 'floats'} of {bits} bits"

    def misfit(self, job: MatrixProduct) -> str | None:
        return SEVERAL if not isinstance(job.spec, MacSpec) else self._lane(job).refusal

    def kernel(self, job: MatrixProduct) -> tuple[str, str]:
        source = self._lane(job).source
        assert source is not None
        return f"gemm_{plan.file_name(_of_kernel(job))}", source

    def seconds(self, job: MatrixProduct) -> float:
        return job.work * IN_EXACT

    def called(self, library: ctypes.CDLL, job: MatrixProduct) -> Matrices | None:
        given = job.a, job.b, job.start, job.shape, job.words
        return call(library, *given, _is_transposed(job), job.out, dtype=job.dtype, parts=job.parts)

    def _lane(self, job: MatrixProduct) -> plan.Lane:
        return plan.lane(_of_kernel(job), counted(job), build.has_fma(), self.family, self.bits)


class General(Compiled):
    """The kernel of all descriptions, in 128-bit integers."""

    name = "integers of 128 bits"

    def misfit(self, job: MatrixProduct) -> str | None:
        if not isinstance(job.spec, MacSpec):
            return SEVERAL
        if job.is_real:
            return CODES_ONLY
        return None if plan.fits_exact(job.spec) else "sums before their rounding are longer"

    def kernel(self, job: MatrixProduct) -> tuple[str, str]:
        return exact.KERNEL

    def seconds(self, job: MatrixProduct) -> float:
        return job.work * IN_TORCH + job.steps * STEP_IN_TORCH

    def called(self, library: ctypes.CDLL, job: MatrixProduct) -> Matrices | None:
        given = job.a, job.b, job.start, job.shape, job.words
        return call(library, *given, _is_transposed(job), job.out, exact.step(_of_kernel(job), counted(job)))


class Triton:
    """The kernel of a GPU."""

    name = "Triton"

    def refuses(self, job: MatrixProduct) -> str | None:
        if job.device != gpu.TYPE:
            return "it takes matrices on a GPU"
        if not isinstance(job.spec, MacSpec):
            return SEVERAL
        if not job.steps or job.is_real:
            return CODES_ONLY if job.steps else "there is nothing to add"
        return gpu.refusal()

    def run(self, job: MatrixProduct) -> Matrices:
        from . import triton_gemm

        operands = gathered(job.a), gathered(job.b)
        result = triton_gemm.gemm(job.spec, *operands, job.start, job.shape, job.words)
        if result is None:
            raise Refused("integers of 64 bits do not hold its sums")
        return result


def _is_transposed(job: MatrixProduct) -> bool:
    return plan.is_transposed(job.shape[-2], job.steps, job.shape[-1])


def _of_kernel(job: MatrixProduct) -> MacSpec:
    """Return the description of the kernel of a job, which computes the transposed product if that is faster."""
    spec: MacSpec = job.spec
    return replace(spec, a=spec.b, b=spec.a) if _is_transposed(job) else spec


KERNELS: tuple[Engine, ...] = (
    Lanes("Fixed", 32),
    Lanes("Fixed", 64),
    Lanes("Float", 32),
    Lanes("Float", 64),
    General(),
    Triton(),
)
"""Engines of compiled kernels, the fastest first."""
