"""What there is, as lines."""

from halfulp.hdl.formats import NAMED


def formats() -> list[str]:
    """The named formats, and how the others are written."""
    lines = [f"{'name':13}{'fields':13}{'bits':>5}{'bias':>6}  {'specials':9}{'largest':>12}  smallest"]
    for name, fmt in NAMED.items():
        largest, smallest = float(fmt.largest), float(fmt.smallest)
        fields = f"e{fmt.exp}m{fmt.man}"
        lines.append(f"{name:13}{fields:13}{fmt.width:5}{fmt.bias:6}  {fmt.specials:9}{largest:12.6g}  {smallest:.6g}")
    return [
        *lines,
        "",
        "Any other float is written by its fields: e<exp>m<man>, exp 2 to 11, man 0 to 52; then b<bias>, then fn,",
        "fnuz or -finite for its specials, then -ftz for no subnormals. e6m5, e4m3b11fnuz and e5m2-ftz are formats.",
    ]


def units() -> list[str]:
    """The catalogue of units."""
    from halfulp.units.catalogue import CATALOGUE

    lines = [f"{'unit':10}{'computes':38}options for formats"]
    for row in CATALOGUE.values():
        lines.append(f"{row.name:10}{row.summary:38}{' '.join(f'--{option}' for option in row.options)}")
    return lines
