"""`log --json` as a record: damaged and shuffled logs never raise."""

from pathlib import Path

from hypothesis import given, settings, strategies as st
from tests.parse.log_invariants import check_document

from stepscope.parse.serverlog import parse_log

CASES = sorted((Path(__file__).parents[2] / "data" / "logs").rglob("*.log"))
LINES = [line for path in CASES for line in path.read_bytes().split(b"\n")][::5]


def mangled(line: bytes, digit: int) -> bytes:
    return bytes(48 + digit if 49 <= b <= 57 else b for b in line)


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.sampled_from(LINES),
            st.tuples(st.sampled_from(LINES), st.integers(0, 9)).map(
                lambda pair: mangled(*pair)
            ),
        ),
        max_size=40,
    ),
    st.sampled_from([None, 0, 1, -9, 137, 139]),
)
def test_any_mixture_of_lines_gets_a_verdict(
    lines: list[bytes], exit_code: int | None
) -> None:
    data = b"\n".join(lines)
    log = parse_log(data)
    verdict = check_document(log, exit_code).verdict
    for fix in verdict.fixes:
        if fix.flag == "--gpu-memory-utilization" and isinstance(fix.value, float):
            assert 0 < fix.value <= 0.95 or fix.direction == "lower"
