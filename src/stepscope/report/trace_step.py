"""One step as lanes: host, layers, streams, collectives. SVG by hand, no script.

A charting library would draw each of a thousand kernels as a mark with axes around;
here a run of kernels below a pixel is one rectangle whose tone says how busy it was.
"""

from html import escape

from stepscope.board.claims import number
from stepscope.report.inert import fit
from stepscope.timeline.picture import Lane, Mark, StepPicture

_LEFT, _WIDTH, _RIGHT = 118, 800, 14
_ROW, _BAR = 26, 18
_LEAST_WIDTH = 0.6
#: kind of mark -> (class of the page's style sheet, what the legend calls it)
_LOOK = {
    "compute": ("fill-s2", "other computation"),
    "communication": ("fill-s4", "communication"),
    "memcpy": ("fill-ink", "copies"),
    "graph launch": ("fill-s1", "graph launch"),
    "call": ("fill-rule", "API call"),
    "wait": ("fill-window", "host waits"),
    "annotation": ("fill-grid", "annotation"),
    "layer 0": ("fill-grid", ""),
    "layer 1": ("fill-rule", ""),
}
#: The kernels that take most of the step have colours of their own.
_TOP = ("fill-s0", "fill-s3", "fill-s5")


def step_svg(picture: StepPicture, name: str) -> str:
    """Return a step as an SVG element for a page.

    Args:
        picture: The step, from ``timeline.picture.step_picture``.
        name: Makes its ids unique; letters, digits and dashes.
    """
    width = _LEFT + _WIDTH + _RIGHT
    top = dict(zip(_top_kernels(picture), _TOP, strict=False))
    below = 30 + _ROW * len(picture.lanes)
    legend, height = _legend(picture, below + 18, top)
    body = [_axis(picture, below)]
    for i, lane in enumerate(picture.lanes):
        body.append(_lane(lane, 30 + i * _ROW, picture.length_us, top))
    body.append(legend)
    title, spoken = step_title(picture), step_spoken(picture)
    return fit(
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


def _axis(picture: StepPicture, bottom: int) -> str:
    step = _tick(picture.length_us)
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


def _top_kernels(picture: StepPicture) -> list[str]:
    """Return the kernels, wide enough to be seen, that take most of the step."""
    spent: dict[str, float] = {}
    for lane in picture.lanes:
        for mark in lane.marks:
            if mark.kind == "compute" and mark.n == 1:
                spent[mark.name] = spent.get(mark.name, 0.0) + mark.busy_us
    most = sorted(spent, key=lambda name: -spent[name])[: len(_TOP)]
    return [name for name in most if spent[name] > 0.02 * picture.length_us]


def _lane(lane: Lane, y: float, length_us: float, top: dict[str, str]) -> str:
    text = escape(lane.name)
    label = f'<text class="fill-ink" x="0" y="{y + 13}">{text}</text>'
    marks = "".join(_rectangle(mark, y, length_us, top) for mark in lane.marks)
    return label + marks


def _rectangle(mark: Mark, y: float, length_us: float, top: dict[str, str]) -> str:
    scale = _WIDTH / length_us
    lo, hi = max(mark.start_us, 0.0), min(mark.end_us, length_us)
    width = max((hi - lo) * scale, _LEAST_WIDTH)
    share = mark.busy_us / max(mark.end_us - mark.start_us, 1e-3)
    tone = f' fill-opacity="{max(0.25, min(share, 1.0)):.2f}"' if mark.n > 1 else ""
    if mark.kind.startswith("layer"):
        tone = ' fill-opacity="0.55"'
    look = _LOOK[mark.kind][0]
    if mark.kind == "compute" and mark.n == 1:
        look = top.get(mark.name, look)
    what = f"{mark.name}: {number(mark.end_us - mark.start_us)} us"
    if mark.n > 1:
        what += f", {number(100 * share)} % busy, {mark.n} together"
    title = f"<title>{escape(what)}</title>"
    return (
        f'<rect class="{look}" x="{_LEFT + lo * scale:.2f}" y="{y}"'
        f' width="{width:.2f}" height="{_BAR}"{tone}>{title}</rect>'
    )


def _legend(picture: StepPicture, y: float, top: dict[str, str]) -> tuple[str, int]:
    """Return the legend and where it ends, in lines as wide as the picture."""
    kinds = {mark.kind for lane in picture.lanes for mark in lane.marks}
    entries = [(look, _short(name)) for name, look in top.items()]
    entries += [(look, t) for kind, (look, t) in _LOOK.items() if kind in kinds and t]
    parts, x = [], 0.0
    for look, text in entries:
        width = 30 + 6.3 * len(text)
        if x + width > _LEFT + _WIDTH:
            x, y = 0.0, y + 17
        parts.append(
            f'<rect class="{look}" x="{x:.0f}" y="{y - 9}" width="10" height="10"/>'
            f'<text class="fill-ink" x="{x + 14:.0f}" y="{y}">{escape(text)}</text>'
        )
        x += width
    return "".join(parts), round(y + 8)


def _short(name: str) -> str:
    return name if len(name) <= 24 else f"{name[:11]}…{name[-11:]}"
