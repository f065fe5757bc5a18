import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from stepscope.importers.clockfit import Bounds, bounds, fit
from stepscope.importers.load import load_foreign
from stepscope.run.requests import Request

SMALL = Path(__file__).parents[1] / "data" / "imports" / "small"
S = 10**9


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SMALL, tmp_path / "in")
    return tmp_path / "in"


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "import.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@given(
    true=st.integers(-(10**18), 10**18),
    margins=st.lists(
        st.tuples(st.integers(0, 3 * S), st.integers(0, 3 * S)), min_size=1, max_size=8
    ),
)
def test_a_planted_offset_lies_in_the_interval_that_is_found(
    true: int, margins: list[tuple[int, int]]
) -> None:
    all_bounds = []
    for number, (early, late) in enumerate(margins):
        sent, last = 100 * number * S, (100 * number + 10) * S
        request = Request(
            index=0, sent_at_ns=sent, ended_at_ns=last, last_content_at_ns=last
        )
        all_bounds.append(
            bounds(str(number), (request,), sent + true - early, last + true + late)
        )
    fits, findings = fit(all_bounds)
    assert findings == []
    (found,) = set(fits.values())
    assert found.offset_ns - found.slack_ns <= true <= found.offset_ns
    assert found.offset_ns == true + min(late for _, late in margins)


def test_bounds_that_miss_each_other_are_fitted_alone_and_told() -> None:
    fits, findings = fit([Bounds("a", 0, 10), Bounds("b", 2 * S, 2 * S + 5)])
    assert (fits["a"].offset_ns, fits["a"].slack_ns) == (10, 10)
    assert (fits["b"].offset_ns, fits["b"].slack_ns) == (2 * S + 5, 5)
    (finding,) = findings
    assert (finding.code, finding.voids) == ("clock-step", False)
    assert "2.000 s" in finding.message


def test_a_command_shorter_than_its_requests_is_told() -> None:
    _, findings = fit([Bounds("a", 5 * S, 2 * S)])
    assert [finding.cell for finding in findings] == [None, "a"]


def test_without_stamps_requests_keep_their_clock_and_a_finding_says_so(
    copy: Path,
) -> None:
    edit(copy, "command_started_at = 1796005197.652\n", "")
    edit(copy, "command_ended_at = 1796005200.982\n", "")
    run = load_foreign(copy)
    placed, alone = run.cells
    assert placed.requests[0].sent_at_ns > 1_796_005_194 * S
    assert alone.requests[0].sent_at_ns < 10_000 * S
    assert [(f.code, f.cell) for f in run.findings] == [
        ("telemetry-window-mismatch", "c2_0")
    ]


def test_nvidia_smi_stamps_are_placed_by_the_commands(copy: Path) -> None:
    rows = ["timestamp, index, power.draw [W]"]
    # 02:19:50 to 02:20:05 UTC, written in a zone nine hours ahead.
    rows += [f"2026/11/30 11:19:{s}.000, 0, {s}.5 W" for s in range(50, 60)]
    rows += [f"2026/11/30 11:20:0{s}.000, 0, {s}.5 W" for s in range(6)]
    (copy / "telemetry.csv").write_text("\n".join(rows) + "\n")
    edit(
        copy, 'file = "telemetry.csv"', 'file = "telemetry.csv"\nformat = "nvidia-smi"'
    )
    run = load_foreign(copy)
    assert run.samples.gpu[0].at_ns == 1_796_005_190 * S
    assert run.samples.gpu[-1].power_w == 5.5

    edit(copy, "format =", "utc_offset_minutes = 480\nformat =")
    assert load_foreign(copy).samples.gpu[0].at_ns == (1_796_005_190 + 3600) * S


def test_telemetry_that_could_lie_in_several_zones_is_left_out(copy: Path) -> None:
    rows = ["timestamp, index, power.draw [W]"]
    rows += [f"2026/11/30 {h:02}:00:00.000, 0, 5 W" for h in range(24)]
    (copy / "telemetry.csv").write_text("\n".join(rows) + "\n")
    run = load_foreign(copy)
    assert run.samples.gpu == ()
    assert "telemetry-window-mismatch" in {f.code for f in run.findings}
