"""The golden model on tensors against the exact model in fractions."""

import dataclasses
import itertools
import random
import re
import sys

import pytest
import torch

from halfulp import golden
from halfulp.golden import exact
from halfulp.hdl.formats import (
    BF16,
    E2M1FN,
    E4M3FN,
    E5M2,
    E6M5,
    EXACT,
    FP16,
    FP32,
    FP64,
    RN,
    RO,
    RZ,
    Float,
    Rounding,
    parse,
    stochastic,
)

MODES = [Rounding.parse(text) for text in ("rn", "ra", "rz", "ru", "rd", "ro", "sr1", "sr3")]

TOYS = [
    Float(exp, man, specials=specials, subnormals=subnormals)
    for exp, man in ((2, 0), (2, 1), (3, 1))
    for specials in ("ieee", "fn", "fnuz", "finite")
    for subnormals in (True, False)
    if not (man == 0 and specials == "ieee")
]

ARITY = {"mul": "ab", "add": "ab", "fma": "abc", "convert": "a", "compare": "ab"}


def tensor(codes):
    """Codes as int64, those of 64 bits by their bits."""
    return torch.tensor([code - (1 << 64) if code >> 63 else code for code in codes], dtype=torch.int64)


def columns_of(result):
    """A result's columns as lists of ints."""
    columns = result if isinstance(result, tuple) else (result,)
    return [[code & ((1 << 64) - 1) for code in column.tolist()] for column in columns]


def differences(name, columns, words=None, **parameters):
    """Vectors compared, and those in which tensors and fractions disagree."""
    more = {} if words is None else {"random": tensor(words)}
    results = columns_of(getattr(golden, name)(*map(tensor, columns), **parameters, **more))
    wrong = []
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = {} if words is None else {"random": words[index]}
        wanted = getattr(exact, name)(*codes, **parameters, **word)
        wanted = [code & ((1 << 64) - 1) for code in (wanted if isinstance(wanted, tuple) else (wanted,))]
        # A tensor of 64-bit codes holds them as negative numbers; the mask makes both the same.
        found = [column[index] for column in results]
        if found != wanted:
            wrong.append((codes, word, [hex(code) for code in wanted], [hex(code) for code in found]))
    return len(columns[0]), wrong


def every(formats, rounding, subtract=False):
    """All operands, with all random words."""
    ranges = [range(1 << fmt.width) for fmt in formats] + [range(2)] * subtract + [range(1 << rounding.bits)]
    *columns, words = zip(*itertools.product(*ranges), strict=True)
    return [list(column) for column in columns], list(words) if rounding.bits else None


@pytest.mark.parametrize("fmt", TOYS, ids=str)
@pytest.mark.parametrize("name", ["mul", "add", "compare"])
def test_every_operand_of_toy_formats(name, fmt):
    for rounding, saturate in itertools.product(MODES, (False, True)):
        columns, words = every([fmt, fmt], rounding, subtract=name == "add")
        count, wrong = differences(name, columns, words, a=fmt, b=fmt, o=fmt, rounding=rounding, saturate=saturate)
        assert wrong == []
        assert count >= 4**fmt.width


@pytest.mark.parametrize("source", TOYS, ids=str)
def test_every_conversion_between_toy_formats(source):
    for target, rounding in itertools.product(TOYS, MODES):
        columns, words = every([source], rounding)
        _, wrong = differences("convert", columns, words, a=source, o=target, rounding=rounding)
        assert wrong == []


@pytest.mark.parametrize("fmt", [fmt for fmt in TOYS if fmt.width <= 4], ids=str)
def test_every_fma_of_toy_formats(fmt):
    for rounding in MODES[:7]:
        columns, words = every([fmt] * 3, rounding)
        _, wrong = differences("fma", columns, words, a=fmt, b=fmt, c=fmt, o=fmt, rounding=rounding)
        assert wrong == []


def aimed(rng, fmt, count, near):
    """Codes of which many are special, or have exponents around ``near`` and mantissas at the edges."""
    codes = []
    for _ in range(count):
        choice = rng.random()
        if choice < 0.2:
            code = rng.getrandbits(fmt.width)
        elif choice < 0.35:
            special = (0, 1, 2, fmt.max_code, fmt.max_code + 1, (1 << fmt.man) - 1, 1 << fmt.man, fmt.nan_code)
            code = rng.choice(special) ^ (fmt.sign_code * rng.getrandbits(1))
        else:
            field = min(max(fmt.bias + near + rng.randint(-3, 3), 0), (1 << fmt.exp) - 1)
            mantissa = rng.choice((rng.getrandbits(fmt.man), 0, 1, (1 << fmt.man) - 1, 1 << max(fmt.man - 1, 0)))
            code = (rng.getrandbits(1) << (fmt.exp + fmt.man)) | (field << fmt.man) | (mantissa & ((1 << fmt.man) - 1))
        codes.append(code & ((1 << fmt.width) - 1))
    return codes


WIDE = [
    *(FP16, BF16, FP32, FP64, E6M5),
    *map(parse, ("fp64-ftz", "e11m52-finite", "e11m0", "e8m23b-700fn")),
    *map(parse, ("e5m30b4096fnuz", "e4m3b-4096-ftz", "e3m4b9fn")),
]


@pytest.mark.parametrize("seed", range(60))
def test_wide_and_mixed_formats(seed):
    """Formats, mode and operands all random; every second run keeps to one format, where operands meet most."""
    rng = random.Random(seed)
    name = rng.choice(list(ARITY))
    one = rng.choice(WIDE)
    pick = (lambda: one) if seed % 2 else (lambda: rng.choice([*WIDE, *TOYS]))
    formats = {letter: pick() for letter in (*ARITY[name], "o")}
    rounding = rng.choice([*MODES, stochastic(32)])
    near, count = rng.randint(-5, 5), 400
    columns = [aimed(rng, formats[letter], count, 2 * near if letter == "c" else near) for letter in ARITY[name]]
    if name == "add":
        columns.append([rng.getrandbits(1) for _ in range(count)])
    words = [rng.getrandbits(rounding.bits) for _ in range(count)] if rounding.bits else None
    saturate = rng.random() < 0.3
    done, wrong = differences(name, columns, words, **formats, rounding=rounding, saturate=saturate)
    assert done == count
    assert wrong == []


@pytest.mark.parametrize("fmt", [FP16, FP32, FP64, E5M2], ids=str)
@pytest.mark.parametrize("rounding", MODES, ids=str)
def test_cancellation_and_sticky(fmt, rounding):
    """c is -(a * b), or its neighbour, or so small that only the sticky bit tells."""
    rng = random.Random(str(rounding))
    xs, ys = aimed(rng, fmt, 600, 0), aimed(rng, fmt, 600, 0)
    negated = [exact.mul(x, y, a=fmt, b=fmt, o=fmt) ^ fmt.sign_code for x, y in zip(xs, ys, strict=True)]
    zs = [(z + rng.choice((-1, 0, 1))) % (1 << fmt.width) for z in negated]
    tiny = [rng.choice((1, fmt.sign_code | 1, 1 << fmt.man)) for _ in xs]
    words = [rng.getrandbits(rounding.bits) for _ in xs] if rounding.bits else None
    for third in (negated, zs, tiny):
        _, wrong = differences("fma", [xs, ys, third], words, a=fmt, b=fmt, c=fmt, o=fmt, rounding=rounding)
        assert wrong == []


@pytest.mark.parametrize("rounding", MODES, ids=str)
def test_dot_product_step_of_three_formats(rounding):
    """Operands, addend and result of formats of their own, the addend around the product."""
    rng = random.Random(str(rounding))
    formats = {"a": E5M2, "b": E4M3FN, "c": FP32, "o": BF16}
    columns = [aimed(rng, formats[letter], 2000, 0) for letter in "abc"]
    words = [rng.getrandbits(rounding.bits) for _ in range(2000)] if rounding.bits else None
    _, wrong = differences("fma", columns, words, **formats, rounding=rounding)
    assert wrong == []


@pytest.mark.parametrize("target", ["e5m2", "e4m3fn-ftz", "e3m2fn", "e2m0", "fp64", "e4m3fnuz"])
def test_what_cancels_is_zero_wherever_the_exponents_are(target):
    """x - x and x * 1 - x with x beyond the largest number of the result, and below its smallest."""
    target = parse(target)
    numbers = [code | sign for code in (1, 0x00800000, 0x3F800001, 0x7F7FFFFF, 0x7E812345) for sign in (0, 1 << 31)]
    ones, negated = [0x3F800000] * len(numbers), [code ^ (1 << 31) for code in numbers]
    for rounding, saturate in itertools.product(MODES, (False, True)):
        words = [(1 << rounding.bits) - 1] * len(numbers) if rounding.bits else None
        more = {"o": target, "rounding": rounding, "saturate": saturate}
        sums = {"a": FP32, "b": FP32, **more}
        assert differences("add", [numbers, numbers, [1] * len(numbers)], words, **sums)[1] == []
        assert differences("fma", [numbers, ones, negated], words, c=FP32, **sums)[1] == []


@pytest.mark.parametrize("product", [None, "e5m2.rz", "e2m0.ro", "e4m3fnuz.sr4", "e2m1fn.rn", "e6m5-ftz.ru"])
@pytest.mark.parametrize("acc", ["e6m5", "e3m2fn", "fp32", "e5m3fnuz-ftz"])
@pytest.mark.parametrize("saturate", [False, True], ids=["", "sat"])
def test_mac_with_a_rounded_product(product, acc, saturate):
    rng = random.Random(f"{product}{acc}")
    acc = parse(acc)
    parameters = {"a": E5M2, "b": E4M3FN, "acc": acc, "rounding": RN, "saturate": saturate}
    if product is not None:
        text, _, mode = product.rpartition(".")
        parameters |= {"product": parse(text), "product_rounding": Rounding.parse(mode)}
    count = 1000
    columns = [aimed(rng, fmt, count, 0) for fmt in (E5M2, E4M3FN, acc)]
    words = [rng.getrandbits(4) for _ in range(count)]
    stochastic_product = bool(parameters.get("product_rounding", EXACT).bits)
    more = {"random_product": tensor(words)} if stochastic_product else {}
    found = golden.mac(*map(tensor, columns), **parameters, **more).tolist()
    for index, codes in enumerate(zip(*columns, strict=True)):
        word = words[index] if stochastic_product else 0
        assert found[index] == exact.mac(*codes, **parameters, random_product=word), [hex(code) for code in codes]


def test_a_sequence_is_its_steps():
    rng = random.Random(1)
    count, rounding = 3000, stochastic(5)
    xs, ys, starts = aimed(rng, E5M2, count, 0), aimed(rng, E5M2, count, 0), aimed(rng, E6M5, count, 0)
    loads, clears = ([int(rng.random() < 0.05) for _ in range(count)] for _ in range(2))
    words = [rng.getrandbits(5) for _ in range(count)]
    parameters = {"a": E5M2, "b": E5M2, "acc": E6M5, "rounding": rounding}
    found = golden.mac_sequence(
        *map(tensor, (xs, ys, starts, loads, clears)), **parameters, random=tensor(words)
    ).tolist()
    accumulator = 0
    for index in range(count):
        base = starts[index] if loads[index] else 0 if clears[index] else accumulator
        accumulator = exact.mac(xs[index], ys[index], base, **parameters, random=words[index])
        assert found[index] == accumulator
    assert golden.mac_sequence(*[torch.zeros(0, dtype=torch.int64)] * 5, a=E5M2, b=E5M2, acc=E6M5).tolist() == []


# Tensors -------------------------------------------------------------------------------------------------------------


def test_shapes_broadcast():
    x, y = torch.arange(256), torch.arange(0, 256, 7)
    grid = golden.mul(x[:, None], y[None, :], a=E5M2, b=E5M2, o=E5M2)
    assert grid.shape == (256, 37)
    flat = golden.mul(x.repeat_interleave(37), y.repeat(256), a=E5M2, b=E5M2, o=E5M2)
    assert torch.equal(grid.flatten(), flat)
    start = torch.arange(4096).reshape(64, 64)
    step = golden.mac(x[:3, None, None], y[0], start, a=E5M2, b=E5M2, acc=E6M5)
    assert step.shape == (3, 64, 64)
    assert golden.convert(torch.tensor(0x3C), a=E5M2, o=FP32).item() == 0x3F800000
    assert golden.convert(torch.zeros(0, 3, dtype=torch.uint8), a=E5M2, o=FP32).shape == (0, 3)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_integer_dtypes(dtype):
    codes = torch.arange(128).to(dtype)
    found = golden.add(codes, codes.flip(0), a=E5M2, b=E5M2, o=FP16)
    assert found.dtype == torch.int64
    assert torch.equal(found, golden.add(torch.arange(128), torch.arange(127, -1, -1), a=E5M2, b=E5M2, o=FP16))


def test_flags_are_bools_or_bits():
    x, y = torch.arange(64, 128), torch.arange(128, 64, -1)
    formats = {"a": E5M2, "b": E5M2, "o": E6M5}
    difference = golden.add(x, y, 1, **formats)
    assert not torch.equal(difference, golden.add(x, y, **formats))
    for subtract in (True, torch.ones(64, dtype=torch.bool), torch.ones(1, dtype=torch.uint8)):
        assert torch.equal(golden.add(x, y, subtract, **formats), difference)
    load, clear = x % 7 == 0, x % 5 == 0
    formats = {"a": E5M2, "b": E5M2, "acc": E6M5}
    bits = golden.mac_sequence(x, y, x * 16, load.to(torch.int64), clear.to(torch.int8), **formats)
    assert torch.equal(golden.mac_sequence(x, y, x * 16, load, clear, **formats), bits)


def test_strides_do_not_matter():
    codes = torch.arange(512).reshape(2, 256)[:, ::2].T
    assert torch.equal(
        golden.convert(codes % 256, a=E5M2, o=FP16),
        golden.convert((codes % 256).contiguous(), a=E5M2, o=FP16),
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_real_values(dtype):
    values = torch.tensor([0.0, -0.0, 1.5, -0.3, 1e-7, float("inf"), -float("inf"), float("nan"), 6e4], dtype=dtype)
    codes = golden.encode(values, FP64)
    assert torch.equal(golden.decode(codes, FP64).nan_to_num(), values.to(torch.float64).nan_to_num())
    assert golden.encode(values, E5M2)[:3].tolist() == [0, 0x80, 0x3E]
    assert golden.encode(torch.tensor([448.0, 500.0]), E4M3FN, RN, saturate=True).tolist() == [0x7E, 0x7E]
    assert golden.encode(torch.tensor([3, -1]), E5M2, RO).tolist() == [0x42, 0xBC]
    words = torch.tensor([0, 1])
    assert golden.encode(torch.tensor([1.125, 1.125]), E5M2, stochastic(1), random=words).tolist() == [0x3C, 0x3D]


def test_texts_name_formats_and_roundings():
    codes = torch.arange(128)
    texts = golden.mac(
        codes, codes, codes, a="e5m2", b="e4m3fn", acc="e6m5", product="fp16", product_rounding="rz", rounding="rd"
    )
    named = {"a": E5M2, "b": E4M3FN, "acc": E6M5, "product": FP16, "product_rounding": RZ}
    assert torch.equal(texts, golden.mac(codes, codes, codes, **named, rounding=Rounding("rd")))
    assert torch.equal(
        golden.encode(golden.decode(codes, "e5m2"), "e4m3fn", "ro"),
        golden.convert(codes, a=E5M2, o=E4M3FN, rounding=RO),
    )
    assert E5M2.encode(0.3, "rz") == E5M2.encode(0.3, RZ)


MUL = {"a": E5M2, "b": E5M2, "o": E5M2}
MAC = {"a": E5M2, "b": E5M2, "acc": E6M5}
CODES = torch.arange(4)


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (
            lambda: golden.mul(CODES.float(), CODES, **MUL),
            TypeError,
            "x is a tensor of integer codes, not of torch.float32; encode() makes codes of numbers",
        ),
        (lambda: golden.mul([1], CODES, **MUL), TypeError, "x is a tensor of codes, not list"),
        (
            lambda: golden.mul(CODES + 256, CODES, **MUL),
            ValueError,
            "x holds 259, but codes of 8 bits are 0 to 255",
        ),
        (lambda: golden.mul(CODES, CODES - 1, **MUL), ValueError, "y holds -1, but codes of 8 bits are 0 to 255"),
        (
            lambda: golden.mul(CODES, CODES, **MUL, random=CODES),
            ValueError,
            "random is given, but rn takes no random words; only sr does",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding=stochastic(3)),
            ValueError,
            "sr3 needs random words of 3 bits; pass them as random",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding=stochastic(1), random=CODES),
            ValueError,
            "random holds 3, but codes of 1 bits are 0 to 1",
        ),
        (lambda: golden.mul(CODES, CODES, **MUL, rounding=EXACT), ValueError, "rounding exact is refused: e5m2 cannot"),
        (
            lambda: golden.mul(CODES, CODES, a=5, b=E5M2, o=E5M2),
            TypeError,
            "a format is a Format or a text such as 'e5m2', not int",
        ),
        (
            lambda: golden.mul(CODES, CODES, **MUL, rounding="up"),
            ValueError,
            "unknown rounding mode 'up'",
        ),
        (
            lambda: golden.mac(CODES, CODES, CODES, a=E5M2, b=E5M2, acc=E6M5, product_rounding=RZ),
            ValueError,
            "the product is exact, so its rounding rz does nothing",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES[:3], CODES, CODES, a=E5M2, b=E5M2, acc=E6M5),
            ValueError,
            "start is a one-dimensional tensor with a code for each step, like all operands",
        ),
        (lambda: golden.encode(CODES > 1, E5M2), TypeError, "values is a tensor of real numbers, not torch.bool"),
        (lambda: golden.encode(1.0, E5M2), TypeError, "values is a tensor of real numbers, not float"),
        (
            lambda: golden.encode(torch.tensor([1, -(1 << 53)]), FP64),
            ValueError,
            "values holds integers of 2^53 or more, which float64 would round before they are encoded",
        ),
        (
            lambda: golden.decode(CODES, Float(11, 52, bias=0)),
            ValueError,
            "float64 cannot hold every number of e11m52b0; e11m52b0 decodes single codes to fractions",
        ),
        (lambda: golden.decode(CODES + 253, E5M2), ValueError, "codes holds 256, but codes of 8 bits are 0 to 255"),
        (lambda: golden.mul(CODES, CODES, **MUL, saturate=1), TypeError, "saturate is a bool, not int"),
        (lambda: golden.add(CODES, CODES, 2, **MUL), ValueError, "subtract holds 2, but codes of 1 bits are 0 to 1"),
        (lambda: golden.add(CODES, CODES, 1.0, **MUL), TypeError, "subtract is a tensor of codes, not float"),
        (
            lambda: golden.mul(CODES, CODES.to("meta"), **MUL),
            ValueError,
            "tensors of one call are on one device, but x on cpu, y on meta",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES + 4093, CODES * 0, CODES * 0, **MAC),
            ValueError,
            "start holds 4096, but codes of 12 bits are 0 to 4095",
        ),
        (
            lambda: golden.mac_sequence(CODES, CODES, CODES, CODES, CODES, **MAC),
            ValueError,
            "load holds 3, but codes of 1 bits are 0 to 1",
        ),
        (
            lambda: golden.mac_sequence(*[CODES > 9] * 5, **MAC, rounding=stochastic(3), random=CODES[:3]),
            ValueError,
            "random is a one-dimensional tensor with a code for each step, like all operands",
        ),
        (
            lambda: golden.mac_sequence(*[CODES[:0]] * 5, **MAC, rounding=EXACT),
            ValueError,
            "rounding exact is refused: e6m5 cannot hold every sum",
        ),
    ],
)
def test_misuse_is_refused_with_a_sentence(call, error, sentence):
    with pytest.raises(error, match=re.escape(sentence)):
        call()


# The comparison itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("damage", "rounding"),
    [
        (lambda decision: decision | {"sticky": torch.zeros_like(decision["sticky"])}, "rn"),
        (lambda decision: decision | {"last": torch.ones_like(decision["last"])}, "rn"),
        (lambda decision: decision | {"negative": ~decision["negative"]}, "ru"),
        (lambda decision: decision | {"seen": decision["seen"] ^ 1}, "sr3"),
        (lambda decision: decision | {"last": decision["last"] ^ 1}, "ro"),
    ],
    ids=["lost sticky", "ties up", "sign", "random bit", "odd"],
)
def test_a_wrong_decision_is_seen(damage, rounding, monkeypatch):
    right = golden.round.round_up
    monkeypatch.setattr(golden.round, "round_up", lambda mode, **decision: right(mode, **damage(decision)))
    rounding = Rounding.parse(rounding)
    columns, words = every([E2M1FN, E2M1FN], rounding)
    _, wrong = differences("mul", columns, words, a=E2M1FN, b=E2M1FN, o=parse("e2m0"), rounding=rounding)
    assert wrong


def test_a_lost_borrow_is_seen(monkeypatch):
    """A difference whose tail is dropped and not borrowed for, so that it is too large by one in the last place."""
    right = golden.wide.Wide.minus
    monkeypatch.setattr(golden.wide.Wide, "minus", lambda x, y, borrow: right(x, y, torch.zeros_like(borrow)))
    fmt, rounding = parse("e3m1-finite"), Rounding.parse("sr3")
    columns, words = every([fmt, fmt], rounding, subtract=True)
    _, wrong = differences("add", columns, words, a=fmt, b=fmt, o=fmt, rounding=rounding)
    assert wrong


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: {"sign": raw.sign & ~raw.zero},
        lambda raw: {"exponent": raw.exponent + 1},
        lambda raw: {"nan": raw.nan & ~raw.inf},
        lambda raw: {"inf": raw.inf & raw.sign},
    ],
    ids=["sign of zero", "exponent", "nan of inf - inf", "inf"],
)
def test_a_wrong_raw_number_is_seen(damage, monkeypatch):
    fmt = parse("e2m1")
    module = sys.modules["halfulp.golden.add"]
    right = module.round_and_pack
    monkeypatch.setattr(
        module, "round_and_pack", lambda raw, *more: right(dataclasses.replace(raw, **damage(raw)), *more)
    )
    columns, _ = every([fmt, fmt], RN, subtract=True)
    _, wrong = differences("add", columns, a=fmt, b=fmt, o=fmt)
    assert wrong
