"""Emulation in FP32 against torch, on the samples of torch's own database of operators."""

import pytest

from tests import operators
from tests.settings import EXHAUSTIVE

REFUSED = """
    _native_batch_norm_legit _segment_reduce.lengths _segment_reduce.offsets _upsample_bilinear2d_aa addbmm
    angle cdist cholesky cholesky_inverse cholesky_solve digamma fft.fft fft.fft2 fft.fftn fft.hfft fft.hfft2
    fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ihfft fft.ihfft2 fft.ihfftn fft.irfft fft.irfft2 fft.irfftn
    fft.rfft fft.rfft2 fft.rfftn geqrf grid_sampler_2d grid_sampler_3d hash_tensor histogram histogramdd i0
    igamma igammac index_reduce.amax index_reduce.amin index_reduce.mean index_reduce.prod linalg.cholesky
    linalg.cholesky_ex linalg.cond linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
    linalg.householder_product linalg.inv linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex linalg.ldl_solve
    linalg.lstsq linalg.lstsq.grad_oriented linalg.lu linalg.lu_factor linalg.lu_factor_ex linalg.lu_solve
    linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_rank.hermitian linalg.norm
    linalg.norm.subgradients_at_zero linalg.pinv linalg.pinv.hermitian linalg.pinv.singular linalg.qr
    linalg.slogdet linalg.solve linalg.solve_ex linalg.solve_triangular linalg.svd linalg.svdvals
    linalg.tensorinv linalg.tensorsolve logcumsumexp logdet lu lu_solve lu_unpack masked_scatter matrix_exp
    nextafter nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
    nn.functional.adaptive_max_pool3d nn.functional.ctc_loss nn.functional.embedding_bag
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.grid_sample
    nn.functional.interpolate.bicubic nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact
    nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none
    nn.functional.max_pool3d nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
    nn.functional.pad.replicate nn.functional.pad.replicate_negative nn.functional.pdist nn.functional.rrelu
    nn.functional.upsample_nearest norm.nuc ormqr pca_lowrank pinverse polar polygamma.polygamma_n_0
    polygamma.polygamma_n_1 polygamma.polygamma_n_2 polygamma.polygamma_n_3 polygamma.polygamma_n_4 put qr
    scatter_reduce.amax scatter_reduce.amin scatter_reduce.mean scatter_reduce.prod scatter_reduce.sum
    sparse.mm.reduce sparse.sampled_addmm special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0
    special.bessel_y1 special.chebyshev_polynomial_t special.chebyshev_polynomial_u
    special.chebyshev_polynomial_v special.chebyshev_polynomial_w special.erfcx special.hermite_polynomial_h
    special.hermite_polynomial_he special.i0e special.i1 special.i1e special.laguerre_polynomial_l
    special.legendre_polynomial_p special.log_ndtr special.modified_bessel_i0 special.modified_bessel_i1
    special.modified_bessel_k0 special.modified_bessel_k1 special.ndtri special.polygamma.special_polygamma_n_0
    special.scaled_modified_bessel_k0 special.scaled_modified_bessel_k1 special.shifted_chebyshev_polynomial_t
    special.shifted_chebyshev_polynomial_u special.shifted_chebyshev_polynomial_v
    special.shifted_chebyshev_polynomial_w special.spherical_bessel_j0 special.zeta stft svd svd_lowrank take
    to_sparse triangular_solve
"""
"""Operators that run in torch for some of their samples, which strict programs refuse in a sentence."""

UNINITIALISED = "value"
FUSED = "gradient: strides"

EXPLAINED = {
    "empty": (UNINITIALISED, "memory is uninitialised"),
    "empty_like": (UNINITIALISED, "memory is uninitialised"),
    "empty_permuted": (UNINITIALISED, "memory is uninitialised"),
    "empty_strided": (UNINITIALISED, "memory is uninitialised"),
    "new_empty": (UNINITIALISED, "memory is uninitialised"),
    "new_empty_strided": (UNINITIALISED, "memory is uninitialised"),
    "linalg.eig": ("gradient: raises nothing", "torch leaves out a check of its gradient inside any dispatch mode"),
    "linalg.matrix_rank": ("out: value of torch.int64", "torch writes no `out` inside any dispatch mode"),
    "linalg.matrix_rank.hermitian": ("out: value of torch.int64", "torch writes no `out` inside any dispatch mode"),
    "narrow_copy": ("IndexError (Dimension out of range", "torch's parts of the operation raise another type"),
    "nn.functional.scaled_dot_product_attention": (FUSED, "fused kernels of torch have other strides than their parts"),
    "ormqr": (FUSED, "the products of a gradient in torch have columns in order"),
    "polar": ("value of torch.complex64", "complex numbers are not emulated"),
    "sparse.sampled_addmm": ("doesn't have storage", "sparse tensors are not emulated"),
}
"""Differences from torch, by a part of their description, and the reasons."""

QUICK = """
    arange cumsum gather index_add index_select linspace nan_to_num native_batch_norm native_layer_norm
    nn.functional.conv_transpose1d nn.functional.soft_margin_loss prod repeat_interleave round.decimals_3 var_mean
"""
"""Operators of the quick test, with one representative of each kind of difference that there was."""


def check(name: str, most: int | None = None) -> None:
    """Compare an operator with torch on its samples."""
    refused, others = set(), {}
    for one, count in operators.findings(operators.database()[name], most).items():
        if ": refused " in one:
            refused.add(one)
        elif name not in EXPLAINED or EXPLAINED[name][0] not in one:
            others[one] = count
    assert not others
    known = name in REFUSED.split()
    # Some of the samples may be refused, and the first ones may not.
    assert bool(refused) == known or (known and most)


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", QUICK.split())
def test_operator_equals_torch_quickly(name):
    check(name, 12)


def pytest_generate_tests(metafunc):
    """Load the database, which takes seconds, only for slow tests."""
    if "operator" in metafunc.fixturenames:
        quick = metafunc.config.option.markexpr == "not slow"
        metafunc.parametrize("operator", [] if quick else sorted(operators.database()))


@pytest.mark.slow
def test_operator_equals_torch(operator):
    check(operator, None if EXHAUSTIVE else 24)
