"""What there is, as lines."""

from halfulp.hdl.formats import NAMED, Fixed, Float, Format, Posit, decimal_text


def formats() -> list[str]:
    """The named formats, and how the others are written."""
    lines = [f"{'name':13}{'what it is':40}{'bits':>4}{'largest':>14}  {'smallest above 0'}"]
    for name, fmt in NAMED.items():
        ends = f"{decimal_text(fmt.largest, 6):>14}  {decimal_text(fmt.smallest, 6)}"
        lines.append(f"{name:13}{_what(fmt):40}{fmt.width:4}{ends}")
    return [
        *lines,
        "",
        "Any other format is written by what it is made of.",
        "  float        e<exp>m<man>, exp 2 to 11, man 0 to 52; then b<bias>; then fn, fnuz or -finite for its",
        "               specials; then -ftz for no subnormals: e6m5, e4m3b11fnuz, e5m2-ftz",
        "  fixed point  fxp<int_bits>.<frac_bits> or, unsigned, ufxp<int_bits>.<frac_bits>, int<bits> or uint<bits>, 1",
        "               to 64 bits in all; then -wrap for no saturation: fxp4.4, ufxp0.8, int12, fxp1.7-wrap",
        "  posit        posit<width>, 3 to 64 bits, with 2 exponent bits; then e<es> for 0 to 4 of them: posit12,",
        "               posit16e1",
    ]


def _what(fmt: Format) -> str:
    """Family and fields of a format, in words."""
    match fmt:
        case Float():
            return f"float e{fmt.exp}m{fmt.man}, bias {fmt.bias}, {fmt.specials}{'' if fmt.subnormals else ', ftz'}"
        case Fixed():
            sign = "signed" if fmt.signed else "unsigned"
            return f"fixed point, {sign}, {fmt.int_bits}.{fmt.frac_bits}, {fmt.overflow}"
        case Posit():
            return f"posit, {fmt.es} exponent bits"
    return str(fmt)


def units() -> list[str]:
    """The catalogue of units."""
    from halfulp.units.catalogue import CATALOGUE

    lines = [f"{'unit':12}{'computes':38}options of its own"]
    for row in CATALOGUE.values():
        lines.append(f"{row.name:12}{row.summary:38}{' '.join(f'--{option}' for option in row.options)}")
    return lines
