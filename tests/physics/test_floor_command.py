"""``stepscope floor``: its document, its errors, its imports."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stepscope.cli.floor import floor
from stepscope.errors import ArchiveError, RecipeError, RefusedError

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
QWEN = str(CONFIGS / "qwen3-30b-a3b.json")
CONTRACT = {
    "model", "params_total", "params_active", "experts", "points", "kv", "assumptions",
}  # fmt: skip
POINT = {
    "batch", "seqs_per_rank", "coverage", "dense_bytes", "expert_bytes", "kv_bytes",
    "bytes_per_rank", "floor_ms",
}  # fmt: skip


def run(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    floor.main([*args, "--json"], standalone_mode=False)
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


def test_the_document_has_the_contracts_keys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = run(capsys, QWEN, "--gpu", "H200", "--batch", "1,16,128")
    assert set(document) >= CONTRACT
    assert [p["batch"] for p in document["points"]] == [1, 16, 128]
    assert all(set(p) >= POINT for p in document["points"])
    assert set(document["experts"]) >= {"n", "per_token", "bytes_each"}
    assert document["kv"]["bytes_per_token"] == 98_304
    assert document["kv"]["bytes_per_request_fixed"] == 0
    assert document["params_total"] == 30_532_122_624


def test_the_context_is_2048_unless_said(capsys: pytest.CaptureFixture[str]) -> None:
    (point,) = run(capsys, QWEN, "--gpu", "H200", "--batch", "4")["points"]
    assert point["kv_bytes"] == 4 * 2048 * 98_304
    (point,) = run(capsys, QWEN, "--gpu", "H200", "--context", "100")["points"]
    assert point["kv_bytes"] == 100 * 98_304


def test_a_dense_model_has_no_experts_and_no_coverage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    document = run(capsys, str(CONFIGS / "llama-3-8b.json"), "--gpu", "L4")
    assert document["experts"] is None
    assert document["points"][0]["coverage"] is None


def test_a_folder_is_as_good_as_the_file_in_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(Path(QWEN).read_text())
    assert run(capsys, str(tmp_path), "--gpu", "H200")["params_total"] > 0


def test_a_measured_bandwidth_is_used_and_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    sheet = run(capsys, QWEN, "--gpu", "H200")["points"][0]["floor_ms"]
    given = run(capsys, QWEN, "--gpu", "H200", "--bandwidth", "2.4e12")
    assert given["points"][0]["floor_ms"] == pytest.approx(2 * sheet)
    saved = tmp_path / "doctor.json"
    saved.write_text('{"bandwidth": {"read_bytes_per_s": 2.4e12}}')
    from_file = run(capsys, QWEN, "--gpu", "H200", "--bandwidth", str(saved))
    assert from_file["points"] == given["points"]
    assert "doctor.json" in from_file["bandwidth_source"]


def test_a_routing_histogram_lowers_coverage(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "routing.json"
    file.write_text(json.dumps([1] * 64 + [9] * 64))
    skewed = run(capsys, QWEN, "--gpu", "H200", "--batch", "16", "--routing", str(file))
    even = run(capsys, QWEN, "--gpu", "H200", "--batch", "16")
    assert skewed["points"][0]["coverage"] < even["points"][0]["coverage"]


def test_people_read_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    floor.main([QWEN, "--gpu", "H200", "--batch", "1,256"], standalone_mode=False)
    text = capsys.readouterr().out
    assert "30.53 B parameters" in text
    assert "64.4 %" not in text
    assert "memory" in text


@pytest.mark.parametrize(
    ("args", "match"),
    [
        (["nowhere.json", "--gpu", "H200"], "no such file"),
        ([QWEN, "--gpu", "H2000"], r"'H2000' is not known; one of .*H200"),
        ([QWEN, "--gpu", "H200", "--ep", "7"], "does not divide"),
        ([QWEN, "--gpu", "H200", "--batch", "1,,2"], "--batch"),
        ([QWEN, "--gpu", "H200", "--batch", "0"], "--batch"),
        ([QWEN, "--gpu", "H200", "--batch", "nan"], "--batch"),
        ([QWEN, "--gpu", "H200", "--kv-dtype", "q5"], "--kv-dtype"),
        ([QWEN, "--gpu", "H200", "--context", "-1"], "--context"),
        ([QWEN, "--gpu", "H200", "--bandwidth", "12"], "--bandwidth"),
        ([QWEN, "--gpu", "H200", "--bandwidth", "nan"], "--bandwidth"),
        ([QWEN, "--gpu", "H200", "--bandwidth", "no-file"], "--bandwidth"),
        ([QWEN, "--gpu", "H200", "--bandwidth", QWEN], "read_bytes_per_s"),
        ([QWEN, "--gpu", "H200", "--routing", QWEN], "no list of numbers"),
        ([str(CONFIGS), "--gpu", "H200"], "no config.json in this folder"),
    ],
)
def test_a_wrong_request_is_one_line_that_names_it(args: list[str], match: str) -> None:
    with pytest.raises(RecipeError, match=match) as caught:
        floor.main(args, standalone_mode=False)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_an_unknown_architecture_exits_with_five(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "secret"}')
    with pytest.raises(RefusedError) as caught:
        floor.main([str(tmp_path), "--gpu", "H200"], standalone_mode=False)
    assert caught.value.exit_code == 5


def test_a_damaged_doctor_file_exits_with_four(tmp_path: Path) -> None:
    (tmp_path / "d.json").write_text("{")
    with pytest.raises(ArchiveError):
        floor.main(
            [QWEN, "--gpu", "H200", "--bandwidth", str(tmp_path / "d.json")],
            standalone_mode=False,
        )


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from stepscope.cli.main import cli;"
        f"cli.main(['floor', {QWEN!r}, '--gpu', 'H200'], standalone_mode=False);"
        "heavy = {'numpy', 'scipy', 'pyarrow', 'duckdb', 'rich', 'asyncio'};"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"
