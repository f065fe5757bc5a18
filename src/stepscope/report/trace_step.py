"""One step as lanes: host, layers, streams, collectives. SVG by hand, no script.

A charting library would draw each of a thousand kernels as a mark with axes around;
here a run of kernels below a pixel is one rectangle whose tone says how busy it was.
"""

from html import escape

from stepscope.board.claims import number
from stepscope.timeline.picture import Lane, Mark, StepPicture

_LEFT, _WIDTH, _RIGHT = 118, 800, 14
_ROW, _BAR = 26, 18
_LEAST_WIDTH = 0.6
#: kind of mark -> (class of the page's style sheet, what the legend calls it)
_LOOK = {
    "compute": ("fill-s0", "computation"),
    "communication": ("fill-s4", "communication"),
    "memcpy": ("fill-s2", "copies"),
    "graph launch": ("fill-s1", "graph launch"),
    "call": ("fill-s3", "API call"),
    "wait": ("fill-s5", "host waits"),
    "annotation": ("fill-grid", "annotation"),
    "layer 0": ("fill-grid", ""),
    "layer 1": ("fill-rule", ""),
}


def step_svg(picture: StepPicture, name: str) -> str:
    """Return a step as an SVG element for a page.

    Args:
        picture: The step, from ``timeline.picture.step_picture``.
        name: Makes its ids unique; letters, digits and dashes.
    """
    height = 34 + _ROW * len(picture.lanes) + 24
    width = _LEFT + _WIDTH + _RIGHT
    body = [_axis(picture, height)]
    for i, lane in enumerate(picture.lanes):
        body.append(_lane(lane, 30 + i * _ROW, picture.length_us))
    body.append(_legend(picture, height - 8))
    title, spoken = step_title(picture), step_spoken(picture)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' style="min-width:640px" role="img" aria-labelledby="{name}-t {name}-d"'
        f' font-size="11"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(spoken)}</desc>{"".join(body)}</svg>'
    )


def step_title(picture: StepPicture) -> str:
    """Return what the picture is."""
    rank = "" if picture.rank is None else f" of rank {picture.rank}"
    return (
        f"The median {picture.kind} step{rank}: {number(picture.length_us / 1000)} ms,"
        f" {picture.n_ops} device operations"
    )


def step_spoken(picture: StepPicture) -> str:
    """Return the picture in words: per lane how long it was active and the longest."""
    return ". ".join(_said(lane) for lane in picture.lanes) + "."


def step_note(picture: StepPicture) -> str:
    """Return what the picture does not show."""
    return (
        f"A rectangle is one operation, or a run of neighbours each shorter than"
        f" {number(picture.pixel_us)} us and drawn as one, paler the less of it was"
        " busy; hover for names. One step of many: it shows order and shape, the table"
        " shows means. Host lanes are what the host did meanwhile, which under"
        " asynchronous scheduling is mostly for the step after."
    )


def _said(lane: Lane) -> str:
    if not lane.marks:
        return f"{lane.name}: nothing"
    if lane.name == "layers":
        mean = sum(m.busy_us for m in lane.marks) / len(lane.marks)
        return f"layers: {len(lane.marks)} repeats of {number(mean)} us on average"
    busy = sum(mark.busy_us for mark in lane.marks)
    longest = max(lane.marks, key=lambda m: m.busy_us)
    return (
        f"{lane.name}: {sum(m.n for m in lane.marks)} entries, {number(busy)} us;"
        f" longest {longest.name[:60]}, {number(longest.busy_us)} us"
    )


def _axis(picture: StepPicture, height: int) -> str:
    step = _tick(picture.length_us)
    bottom = height - 26
    parts, at = [], 0.0
    while at <= picture.length_us:
        x = _LEFT + _WIDTH * at / picture.length_us
        parts.append(
            f'<line class="stroke-grid" stroke="#e4e6e9" x1="{x:.1f}" x2="{x:.1f}"'
            f' y1="22" y2="{bottom}"/><text class="fill-ink" x="{x:.1f}" y="15"'
            f' text-anchor="middle">{number(at / 1000)}</text>'
        )
        at += step
    return (
        f'<text class="fill-ink" x="0" y="15">ms into the step</text>{"".join(parts)}'
    )


def _tick(length_us: float) -> float:
    """Return a round distance that makes five to ten ticks."""
    size = 1.0
    while True:
        for factor in (1, 2, 5):
            if length_us / (size * factor) <= 10:
                return size * factor
        size *= 10


def _lane(lane: Lane, y: float, length_us: float) -> str:
    text = escape(lane.name)
    label = f'<text class="fill-ink" x="0" y="{y + 13}">{text}</text>'
    return label + "".join(_rectangle(mark, y, length_us) for mark in lane.marks)


def _rectangle(mark: Mark, y: float, length_us: float) -> str:
    scale = _WIDTH / length_us
    lo, hi = max(mark.start_us, 0.0), min(mark.end_us, length_us)
    width = max((hi - lo) * scale, _LEAST_WIDTH)
    share = mark.busy_us / max(mark.end_us - mark.start_us, 1e-3)
    tone = f' fill-opacity="{max(0.25, min(share, 1.0)):.2f}"' if mark.n > 1 else ""
    if mark.kind.startswith("layer"):
        tone = ' fill-opacity="0.55"'
    look = _LOOK[mark.kind][0]
    what = f"{mark.name}: {number(mark.end_us - mark.start_us)} us"
    if mark.n > 1:
        what += f", {number(100 * share)} % busy, {mark.n} together"
    title = f"<title>{escape(what)}</title>"
    return (
        f'<rect class="{look}" x="{_LEFT + lo * scale:.2f}" y="{y}"'
        f' width="{width:.2f}" height="{_BAR}"{tone}>{title}</rect>'
    )


def _legend(picture: StepPicture, y: float) -> str:
    kinds = {mark.kind for lane in picture.lanes for mark in lane.marks}
    parts, x = [], float(_LEFT)
    for kind, (look, text) in _LOOK.items():
        if kind in kinds and text:
            parts.append(
                f'<rect class="{look}" x="{x:.0f}" y="{y - 9}" width="10" height="10"/>'
                f'<text class="fill-ink" x="{x + 14:.0f}" y="{y}">{text}</text>'
            )
            x += 34 + 6.4 * len(text)
    return "".join(parts)
