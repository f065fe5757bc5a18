"""A figure: a Vega-Lite specification as a plain dict, with what is spoken of it."""

from dataclasses import dataclass

#: name -> the colour in light, which is also that of exported files. The page's
#: style sheet gives each name its colour in dark.
COLOURS = {
    "ink": "#1c1e21",
    "grid": "#e4e6e9",
    "rule": "#8b9097",
    "void": "#9aa0a6",
    "window": "#f3d9a4",
    "s0": "#2f6fb7",
    "s1": "#c8641c",
    "s2": "#238a62",
    "s3": "#9550a8",
    "s4": "#a8323e",
    "s5": "#6b7a1f",
}
SERIES = tuple(COLOURS[f"s{i}"] for i in range(6))


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture.

    Attributes:
        name: File name and prefix of ids; letters, digits and dashes only.
        title: What it shows.
        alt: What a reader who can not see it needs to know.
        spec: Vega-Lite, data included, without ``config``.
        note: What the picture does not show.
    """

    name: str
    title: str
    alt: str
    spec: dict[str, object]
    note: str = ""


def series(index: int) -> str:
    """Return the colour of the n-th series; after six they repeat."""
    return SERIES[index % len(SERIES)]
