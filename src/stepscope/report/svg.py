"""A Vega-Lite specification as an SVG that is safe to put inside a page.

The renderer bundles its own engine and fonts and fetches nothing here: every
specification carries its data. What comes back is rewritten so that it needs no
script: marks say their numbers on hovering, colours follow the page's scheme, ids do
not collide with those of other figures.
"""

import html
import re
from xml.etree import ElementTree as ET

import vl_convert

from stepscope.report.figure import COLOURS, Figure
from stepscope.report.inert import clipped, fit, fit_spec

_SVG = "http://www.w3.org/2000/svg"
_KEPT_TAGS = frozenset(
    {"svg", "g", "path", "line", "rect", "circle", "text", "tspan", "title", "desc",
     "defs", "clipPath", "linearGradient", "stop"}
)  # fmt: skip
_LONG_NUMBER = re.compile(r"-?\d+\.\d{3,}(?:e-?\d+)?")
_ID_REFERENCE = re.compile(r"url\(#([\w-]+)\)")
#: A Vega-Lite version that this code was written against, so that an upgrade of the
#: renderer does not redraw old figures by itself.
_VEGA_LITE = "5.20"

#: Of a description; the tables hold every number.
_MOST_SPOKEN = 6000

_CONFIG: dict[str, object] = {
    "background": None,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": COLOURS["ink"],
        "titleColor": COLOURS["ink"],
        "titleFontWeight": "normal",
        "titleFontSize": 12,
        "labelFontSize": 11,
        "domainColor": COLOURS["rule"],
        "tickColor": COLOURS["rule"],
        "gridColor": COLOURS["grid"],
    },
    "legend": {
        "labelColor": COLOURS["ink"],
        "titleColor": COLOURS["ink"],
        "titleFontWeight": "normal",
        "labelFontSize": 11,
        "orient": "bottom",
    },
    "title": {
        "color": COLOURS["ink"],
        "fontSize": 12,
        "fontWeight": "normal",
        "anchor": "start",
    },
}


def render(figure: Figure) -> str:
    """Return the figure as an SVG element for a page; it has no script or link."""
    return inline(_raw(figure), figure)


def standalone(figure: Figure) -> str:
    """Return the figure as an SVG file on white."""
    return _raw(figure, background="white")


def png(figure: Figure) -> bytes:
    """Return the figure as a PNG on white, two device pixels a pixel."""
    data: bytes = vl_convert.svg_to_png(standalone(figure), scale=2)
    return data


def plain(figure: Figure) -> dict[str, object]:
    """Return the specification with all text such that an SVG can hold it."""
    return {key: fit_spec(value) for key, value in figure.spec.items()}


def _raw(figure: Figure, background: str | None = None) -> str:
    config = _CONFIG if background is None else {**_CONFIG, "background": background}
    text: str = vl_convert.vegalite_to_svg(
        {**plain(figure), "config": config},
        vl_version=_VEGA_LITE,
        allowed_base_urls=[],
    )
    return text


def inline(svg: str, figure: Figure) -> str:
    """Rewrite a rendered SVG for a page.

    Args:
        svg: What the renderer wrote.
        figure: Its name makes the ids unique; its title and description are spoken.

    Returns:
        An ``<svg>`` element without script, link, handler or foreign element.
    """
    ET.register_namespace("", _SVG)
    # The text comes from our own renderer, which escapes what it is given.
    root = ET.fromstring(svg)  # noqa: S314
    _clean(root, figure.name)
    width, height = root.attrib.pop("width", "0"), root.attrib.pop("height", "0")
    root.set("viewBox", root.get("viewBox") or f"0 0 {width} {height}")
    # A wide picture scrolls on a narrow screen before its text can not be read.
    least = 480.0 if float(width) <= 720 else 0.75 * float(width)
    root.set("style", f"min-width:{min(float(width), least):.0f}px")
    root.set("role", "img")
    root.set("aria-labelledby", f"{figure.name}-t {figure.name}-d")
    for tag, key, text in (("desc", "d", figure.alt), ("title", "t", figure.title)):
        element = ET.Element(f"{{{_SVG}}}{tag}", {"id": f"{figure.name}-{key}"})
        element.text = clipped(fit(text), _MOST_SPOKEN)
        root.insert(0, element)
    return ET.tostring(root, encoding="unicode")


def _clean(parent: ET.Element, prefix: str) -> None:
    """Drop what draws nothing or could act; name colours; add hover titles."""
    for child in list(parent):
        tag = child.tag.removeprefix(f"{{{_SVG}}}")
        if tag not in _KEPT_TAGS or _draws_nothing(child, tag):
            parent.remove(child)
            continue
        _clean(child, prefix)
        _attributes(child, prefix)
        if tag == "g" and len(child) == 0:
            parent.remove(child)


def _draws_nothing(element: ET.Element, tag: str) -> bool:
    if element.get("display") == "none":
        return True
    if tag == "path" and element.get("class") in ("background", "foreground"):
        return element.get("stroke") is None and element.get("fill") is None
    return False


_NAMED = {colour: name for name, colour in COLOURS.items()}
_KEPT_ATTRIBUTES = frozenset(
    {"d", "transform", "x", "y", "x1", "x2", "y1", "y2", "width", "height", "cx", "cy",
     "r", "rx", "ry", "fill", "stroke", "stroke-width", "stroke-dasharray",
     "stroke-opacity", "fill-opacity", "opacity", "text-anchor", "font-size",
     "font-weight", "font-style", "clip-path", "id", "viewBox", "stroke-miterlimit",
     "stroke-linecap"}
)  # fmt: skip


def _attributes(element: ET.Element, prefix: str) -> None:
    label = element.get("aria-label")
    if label and element.get("aria-roledescription") not in ("axis", "legend", "title"):
        title = ET.Element(f"{{{_SVG}}}title")
        title.text = html.unescape(label)
        element.insert(0, title)
    classes = [
        f"{kind}-{_NAMED[value]}"
        for kind in ("fill", "stroke")
        if (value := (element.get(kind) or "").lower()) in _NAMED
    ]
    for name, value in list(element.attrib.items()):
        if name not in _KEPT_ATTRIBUTES or (name == "opacity" and value == "1"):
            del element.attrib[name]
            continue
        short = _LONG_NUMBER.sub(lambda m: f"{float(m[0]):.2f}", value)
        element.set(name, _ID_REFERENCE.sub(rf"url(#{prefix}-\1)", short))
    if "id" in element.attrib:
        element.set("id", f"{prefix}-{element.get('id')}")
    if classes:
        element.set("class", " ".join(classes))
