import shutil
from pathlib import Path

import pytest

from stepscope.errors import (
    ArchiveError,
    RecipeError,
    RefusedError,
    StepscopeError,
)
from stepscope.importers.load import load_foreign
from stepscope.importers.open import open_any

SMALL = Path(__file__).parents[1] / "data" / "imports" / "small"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(SMALL, tmp_path / "in")
    return tmp_path / "in"


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "import.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def error_of(path: Path) -> StepscopeError:
    with pytest.raises(StepscopeError) as error:
        load_foreign(path)
    assert "\n" not in str(error.value)
    return error.value


def test_a_path_that_does_not_exist_is_exit_2(tmp_path: Path) -> None:
    error = error_of(tmp_path / "nowhere")
    assert (type(error), error.exit_code) == (RecipeError, 2)
    assert "nowhere: does not exist" in str(error)
    with pytest.raises(RecipeError):
        open_any(tmp_path / "nowhere")


def test_an_empty_folder_says_what_could_be_there(tmp_path: Path) -> None:
    error = error_of(tmp_path)
    assert error.exit_code == 4
    assert "is empty" in str(error)
    assert "import.toml" in str(error)


def test_a_folder_of_something_else_is_told_apart_from_an_empty_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "photo.jpg").touch()
    assert "holds 1 files, none of a known form" in str(error_of(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("concurrency = 1", "concurency = 1", "cell[0].concurency: unknown key; did"),
        ("[telemetry]", "[telemetri]", "telemetri: unknown key; did you mean 'telem"),
        ("n_gpus = 1", "zzz = 1", "run.zzz: unknown key; known: engine"),
        ("concurrency = 1", 'concurrency = "1"', "cell[0].concurrency"),
        ('engine = "vllm"\n', "", "engine"),
        ('name = "c2_0"', 'name = "c1_0"', "two cells are named 'c1_0'"),
        ('"c1_0.json.gz"', '"c9.json"', "cell[0].results: names"),
        ('"server.log.gz"', '"gone.log"', "log.file: names"),
        ('"telemetry.csv"', '"gone.csv"', "telemetry.file: names"),
        ('"cmd.json"', '"gone.json"', "run.server_command: names"),
        ('["c2_0.json.gz"]', "[]", "cell[1]: has no results"),
        ("= 1796005197.640", "= 1796005100.0", "cell[0].command_ended_at: lies"),
        (
            'name = "c2_0"\nconfiguration = "baseline"',
            'name = "c2_0"\nconfiguration = "other"',
            "names 2 configurations (baseline, other)",
        ),
    ],
)
def test_a_wrong_key_is_exit_2_with_its_path(
    copy: Path, old: str, new: str, expected: str
) -> None:
    edit(copy, old, new)
    error = error_of(copy)
    assert error.exit_code == 2
    assert expected in str(error)
    assert "import.toml" in str(error)


def test_all_unknown_keys_are_told_at_once(copy: Path) -> None:
    edit(copy, "n_gpus = 1", "n_gpu = 1\ngpus = 2")
    edit(copy, "n_prompts = 2", "prompts = 2")
    error = error_of(copy)
    assert isinstance(error, RecipeError)
    lines = error.lines()
    assert len(lines) == 3
    assert ["run.n_gpu:" in lines[0], "run.gpus:" in lines[1]] == [True, True]
    assert "cell[0].prompts:" in lines[2]


@pytest.mark.parametrize(
    "name",
    ["c1_0.json.gz", "c1_0.metrics0.txt.gz", "server.log.gz"],
)
def test_a_gzip_cut_short_is_exit_4_with_the_file(copy: Path, name: str) -> None:
    data = (copy / name).read_bytes()
    for n_bytes in (3, len(data) // 2, len(data) - 1):
        (copy / name).write_bytes(data[:n_bytes])
        error = error_of(copy)
        assert (type(error), error.exit_code) == (ArchiveError, 4)
        assert name in str(error)
        assert "gzip" in str(error)


def test_a_gzip_with_wrong_bytes_is_exit_4_with_the_file(copy: Path) -> None:
    data = bytearray((copy / "c1_0.json.gz").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (copy / "c1_0.json.gz").write_bytes(data)
    error = error_of(copy)
    assert error.exit_code == 4
    assert "c1_0.json.gz" in str(error)


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("c1_0.json.gz", b"{", "no JSON"),
        ("c1_0.json.gz", b'{"duration": 1.0}', "key completed: is missing"),
        ("c1_0.json.gz", b"", "no JSON"),
        ("cmd.json", b"[1]", "holds no command"),
        ("cmd.json", b"{", "holds no command"),
        ("telemetry.csv", b"", "no stamp"),
        ("telemetry.csv", b"a,b\n1,2\n", "the columns are a, b"),
        ("import.toml", b"[run", "is no TOML"),
    ],
)
def test_a_damaged_file_is_exit_4_with_file_and_key(
    copy: Path, name: str, data: bytes, expected: str
) -> None:
    (copy / name).write_bytes(data)
    error = error_of(copy)
    assert error.exit_code == 4
    assert name in str(error)
    assert expected in str(error)


@pytest.mark.parametrize(
    ("name", "text", "tool"),
    [
        (
            "benchmarks.json",
            '{"benchmarks": [{"metrics": {"inter_token_latency_ms": {}}}]}',
            "GuideLLM",
        ),
        (
            "profile_export_aiperf.json",
            '{"request_latency": {}, "inter_token_latency": {}}',
            "AIPerf",
        ),
    ],
)
def test_known_tools_that_are_not_read_are_refused_by_name(
    tmp_path: Path, name: str, text: str, tool: str
) -> None:
    (tmp_path / name).write_text(text)
    for path in (tmp_path / name, tmp_path):
        error = error_of(path)
        assert (type(error), error.exit_code) == (RefusedError, 5)
        assert tool in str(error)


def test_runs_of_two_gpus_are_not_one_run(copy: Path) -> None:
    edit(copy, "NVIDIA H200", "NVIDIA B300")
    with pytest.raises(RecipeError, match="the paths differ in gpu"):
        load_foreign([SMALL, copy])


POST = Path(__file__).parents[2] / "examples" / "post"


@pytest.fixture
def post(tmp_path: Path) -> Path:
    return shutil.copytree(POST, tmp_path / "post")


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("mean = 250.35", "mean = nan", "cell[0].summary.ttft_ms.mean: NaN; a finite"),
        ("mean = 250.35", "mean = inf", "summary.ttft_ms.mean: Infinity; a finite"),
        ("mean = 250.35", "mean = -5", "summary.ttft_ms.mean: -5; 0 or more"),
        ("duration_s = 70.55", "duration_s = 0", "duration_s: 0; seconds above 0"),
        ("duration_s = 70.55", "duration_s = nan", "duration_s: NaN; a finite"),
        ("n_completed = 100", "n_completed = 0", "n_completed: 0; 1 or more"),
        ("n_completed = 100", "n_completed = 101", "101 requests completed or failed"),
        ("concurrency = 16\n", "concurrency = -4\n", "concurrency: -4; 1 or more"),
        ("output_tokens = 102400", f"output_tokens = {10**20}", "at most 1e15"),
        (
            "[cell.summary]",
            "[cell.telemetry]\nutil_pct = 512\n[cell.summary]",
            "util_pct: 512; at most 100",
        ),
        ('"engram.toml"', '"session-2.toml"', "include[1]: session-2.toml again"),
        ('"engram.toml"', '"./session-2.toml"', "session-2.toml again"),
    ],
)
def test_a_number_that_nobody_measured_is_exit_2(
    post: Path, old: str, new: str, expected: str
) -> None:
    edit(post, old, new)
    error = error_of(post / "import.toml")
    assert error.exit_code == 2
    assert expected in str(error)


CLAIM = """
[[claim]]
id = "a"
text = "a floor"
quantity = "floor_ms"
value = 1.9
"""


@pytest.mark.parametrize(
    ("claims", "expected"),
    [
        (CLAIM + CLAIM, "two claims are named 'a'"),
        (CLAIM + 'hypothesis = "power"', "has quantity and hypothesis"),
        (CLAIM.replace('quantity = "floor_ms"', ""), "has nothing to check"),
        (CLAIM.replace("value = 1.9", ""), "claim[0].quantity: has no value"),
    ],
)
def test_a_claim_says_one_thing(copy: Path, claims: str, expected: str) -> None:
    with (copy / "import.toml").open("a") as file:
        file.write(claims)
    error = error_of(copy)
    assert error.exit_code == 2
    assert expected in str(error)


def test_an_import_needs_neither_a_command_nor_a_model(tmp_path: Path) -> None:
    shutil.copy(SMALL / "c2_0.json.gz", tmp_path)
    (tmp_path / "import.toml").write_text(
        '[run]\nengine = "vllm"\n[[cell]]\nname = "c2"\nconfiguration = "b"\n'
        'concurrency = 2\nresults = ["c2_0.json.gz"]\n',
        "utf-8",
    )
    run = load_foreign(tmp_path)
    assert run.launches[0].command == ()
    assert len(run.cells[0].requests) == run.cells[0].workload.n_prompts


def test_an_import_of_nothing_is_exit_2(tmp_path: Path) -> None:
    (tmp_path / "import.toml").write_text('[run]\nengine = "vllm"\n')
    error = error_of(tmp_path)
    assert (type(error), error.exit_code) == (RecipeError, 2)
    assert "names neither a [[cell]] nor a [log]" in str(error)


def test_a_launch_is_named_by_its_folder_wherever_it_is_called_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "server.log").write_text("INFO 11-30 02:18:18 vLLM version 0.26.0\n")
    text = '[run]\nengine = "vllm"\n[log]\nfile = "server.log"\n'
    (tmp_path / "import.toml").write_text(text)
    monkeypatch.chdir(tmp_path)
    (launch,) = load_foreign(Path("import.toml")).launches
    assert launch.configuration == tmp_path.name
