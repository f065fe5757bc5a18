"""The page of many runs."""

import msgspec

from stepscope.analysis.trend.records import (
    ChangePoint,
    FieldChange,
    IdentityChange,
    TrendDocument,
    TrendPoint,
    TrendRun,
    TrendSeries,
)
from stepscope.report.trend import trend_figures, trend_html

EVIL = "<script>alert(1)</script>"
DAY_NS = 86_400 * 1_000_000_000


def document(n: int = 24) -> TrendDocument:
    points = tuple(
        TrendPoint(run=f"r{i}", at_unix_ns=i * DAY_NS, value=10.0 + (i >= 12), n=2)
        for i in range(n)
    )
    change = ChangePoint(
        run="r12", at_unix_ns=12 * DAY_NS, delta_pct=10.0, ci95_pct=(9.0, 11.0),
        p=0.003, fields=("driver",),
    )  # fmt: skip
    series = TrendSeries(
        configuration=EVIL, concurrency=8, metric="tpot_ms", input_tokens=8,
        output_tokens=16, n_prompts=16, points=points, mean=10.5, cv_pct=0.5,
        changes=(change,), runs_missing=0, drift=0.0,
    )  # fmt: skip
    return TrendDocument(
        schema=1,
        runs=tuple(
            TrendRun(id=p.run, path=p.run, at_unix_ns=p.at_unix_ns) for p in points
        ),
        runs_needed=20,
        identity_changes=(
            IdentityChange(
                run="r12",
                at_unix_ns=12 * DAY_NS,
                fields=(FieldChange(field="driver", before="570", after=EVIL),),
            ),
        ),
        series=(series,),
        findings=(),
    )


def test_the_page_says_what_moved_and_what_changed_there() -> None:
    page = trend_html(document())
    assert "+10.0 % (+9.0 to +11.0 %) from r12 on" in page
    assert "there changed: driver" in page
    assert "p 0.0030" in page


def test_nothing_in_the_page_runs_or_is_fetched() -> None:
    page = trend_html(document())
    assert "<script" not in page
    assert "default-src 'none'" in page
    assert "&lt;script&gt;" in page


def test_a_session_change_is_a_line_before_its_run() -> None:
    (figure,) = trend_figures(document())
    layers = figure.spec["layer"]
    assert isinstance(layers, list)
    assert layers[0]["data"]["values"] == [{"n": 12.5}]


def test_one_run_has_no_picture() -> None:
    alone = msgspec.structs.replace(document(1), identity_changes=())
    assert trend_figures(alone) == ()
