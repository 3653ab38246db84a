"""Counter-based random words: published vectors, and kernels against tensors."""

import numpy as np
import pytest
import torch

from halfulp import golden
from halfulp.golden.kernels.launch import Words
from halfulp.golden.philox import philox, philox_words
from halfulp.hdl.specs import MacSpec
from tests.kernel_products import (
    _kernels,  # noqa: F401  # a fixture for every test
    codes,
    in_torch,
)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0, 0, 0, 0], 0, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, (1 << 64) - 1, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            0x299F31D0A4093822,
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_matches_published_words(counter, key, words):
    """The published words are kat_vectors of the authors' library Random123."""
    assert philox(torch.tensor(counter), key).tolist() == words


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "text",
    [
        "e5m2*e5m2+e6m5.sr10",
        "e4m3*e4m3=e5m2.sr3+e6m5.sr24",
        "posit8*posit8+exact=posit8.sr5",
        "bf16*bf16+fp32.sr10",
    ],
)
def test_counter_based_words_match_between_kernels_and_tensors(text):
    """Kernels and tensors use the words of `philox_words`, also for split sums."""
    spec = MacSpec.parse(text)
    rng = np.random.default_rng(1)
    a, b, start = (codes(rng, *of, "real") for of in ((spec.a, (3, 50)), (spec.b, (50, 37)), (spec.o, (3, 37))))
    key = 0xFEDCBA9876543210
    found = golden.gemm(a, b, spec, start=start, source="philox", seed=key)
    assert torch.equal(found, in_torch(spec, a, b, start, Words(key=key)))
    elements = torch.arange(3 * 37).reshape(3, 37)
    words = {
        name: philox_words(key, elements, 50, bits, stream=stream)
        for stream, name in enumerate(("random", "random_product"))
        if (bits := spec.words.get(name))
    }
    assert torch.equal(found, golden.gemm(a, b, spec, start=start, **words))
    assert not torch.equal(found, golden.gemm(a, b, spec, start=start, source="philox", seed=1))
    if not spec.quire:
        first = golden.gemm(a[:, :13], b[:13], spec, start=start, source="philox", seed=key)
        assert torch.equal(
            found, golden.gemm(a[:, 13:], b[13:], spec, start=first, source="philox", seed=key, first_step=13)
        )
