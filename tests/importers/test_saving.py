import shutil
from pathlib import Path

import pytest

from stepscope.archive.manifest import verify
from stepscope.errors import RecipeError
from stepscope.importers.load import load_foreign
from stepscope.importers.open import open_any
from stepscope.importers.save import import_to

SMALL = Path(__file__).parents[1] / "data" / "imports" / "small"
DATA = Path(__file__).parents[2].parent / "shared" / "data"


@pytest.mark.parametrize(
    "source",
    [
        SMALL,
        DATA / "h200x1-qwen3moe-iteration-details",
        DATA / "h200x1-boot-no-kv-memory",
        SMALL / "c2_0.json.gz",
    ],
    ids=lambda path: path.name,
)
def test_what_was_saved_opens_as_what_was_read(source: Path, tmp_path: Path) -> None:
    read = load_foreign(source)
    out = import_to(source, tmp_path / "run")
    opened = open_any(out)
    assert opened.samples == read.samples
    assert opened.findings == read.findings
    assert opened.timeline == read.timeline
    for before, after in zip(read.cells, opened.cells, strict=True):
        assert after.requests == before.requests
        assert after.metrics_before == before.metrics_before
        assert after.metrics_after == before.metrics_after
        assert after.workload == before.workload
        assert after.clock_slack_ns == before.clock_slack_ns
    for mine, kept in zip(read.launches, opened.launches, strict=True):
        assert kept.log == mine.log
        assert (kept.command, kept.ready) == (mine.command, mine.ready)
    assert opened.complete
    assert verify(out) > 5


def test_foreign_bytes_are_kept_and_can_be_imported_again(tmp_path: Path) -> None:
    out = import_to(SMALL, tmp_path / "run")
    for path in SMALL.iterdir():
        assert (out / "foreign" / path.name).read_bytes() == path.read_bytes()
    assert load_foreign(out / "foreign").cells[0].requests == (
        load_foreign(SMALL).cells[0].requests
    )
    cell = open_any(out).cells[0]
    assert cell.raw_path == "foreign/c1_0.json.gz"


def test_traces_come_along(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SMALL, source)
    (source / "a.trace.json").write_text("{}")
    toml = source / "import.toml"
    toml.write_text(toml.read_text() + '[[trace]]\nfile = "a.trace.json"\nrank = 1\n')
    out = import_to(source, tmp_path / "run")
    shutil.rmtree(source)
    (trace,) = open_any(out).traces
    assert Path(trace.path).read_text() == "{}"
    assert (trace.rank, trace.launch) == (1, "baseline-l0")


def test_importing_again_to_the_same_folder_is_refused(tmp_path: Path) -> None:
    out = import_to(SMALL, tmp_path / "run")
    before = (out / "manifest.json").read_bytes()
    with pytest.raises(RecipeError, match="already holds a run"):
        import_to(SMALL, out)
    assert (out / "manifest.json").read_bytes() == before


def test_nothing_is_left_behind_when_the_input_is_damaged(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SMALL, source)
    (source / "c1_0.json.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(Exception, match=r"c1_0\.json\.gz"):
        import_to(source, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_secrets_in_the_command_are_not_copied(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SMALL, source)
    (source / "cmd.json").write_text(
        '{"cmd": ["vllm", "serve", "m", "--api-key", "hush"],'
        ' "env": {"HF_TOKEN": "hush"}}'
    )
    out = import_to(source, tmp_path / "run")
    for path in out.rglob("*"):
        assert not path.is_file() or b"hush" not in path.read_bytes(), path
    assert open_any(out).launches[0].command[-1] == "<removed>"


def test_an_import_that_fails_half_way_leaves_no_run(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SMALL, source)
    there = tmp_path / "empty"
    there.mkdir()
    spec = source / "import.toml"
    name = "n" * 300
    spec.write_text(spec.read_text().replace('name = "c1_0"', f'name = "{name}"', 1))
    for out in (tmp_path / "new", there):
        with pytest.raises(RecipeError, match="300 bytes as a folder's"):
            import_to(source, out)
    assert not (tmp_path / "new").exists()
    assert list(there.iterdir()) == []


def test_a_file_that_can_not_be_copied_leaves_no_run(tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(SMALL, source)
    out = tmp_path / "out"
    long = out / "foreign" / ("n" * 250)
    (source / long.name).mkdir()
    spec = source / "import.toml"
    deep = source / long.name / ("c\N{SNOWMAN}" * 50 + ".json.gz")
    shutil.copy(source / "c1_0.json.gz", deep)
    told = spec.read_text().replace("c1_0.json.gz", str(deep.relative_to(source)), 1)
    spec.write_text(told)
    with pytest.raises(OSError, match="too long"):
        import_to(source, out)
    assert not out.exists()
