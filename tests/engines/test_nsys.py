"""The words that nsys is started with, and where its importer lies."""

from pathlib import Path

import pytest

from stepscope.engines.catalog import ENGINES
from stepscope.engines.definition import TraceOrder
from stepscope.engines.nsys import IMPORTER, NsysOrder, importer_of
from stepscope.engines.processes import single_role, vllm_role
from stepscope.recipe.loader import load_recipe

ORDER = NsysOrder(session="s1", scratch="/scratch/x", server_tmp="/server/tmp")
RECIPE = """
name = "r"
engine = "{engine}"
model = "m"
[workload]
input_tokens = 8
output_tokens = 4
concurrency = [8]
[capture]
tool = "nsys"
"""


def test_a_server_is_launched_in_a_session_that_records_every_node_of_a_graph() -> None:
    assert ORDER.launch == (
        "nsys", "launch", "--session-new=s1", "--trace=cuda,nvtx",
        "--cuda-graph-trace=node", "--trace-fork-before-exec=true",
        "--show-output=true", "--wait=primary", "env", "TMPDIR=/server/tmp",
    )  # fmt: skip
    assert ORDER.environment == {"TMPDIR": "/scratch/x"}


def test_a_recording_is_begun_ended_and_exported_by_the_name_of_the_session() -> None:
    assert ORDER.start == (
        "nsys", "start", "--session=s1", "--sample=none", "--cpuctxsw=none",
        "--output=/scratch/x/timeline", "--force-overwrite=true",
    )  # fmt: skip
    assert ORDER.stop == ("nsys", "stop", "--session=s1")
    assert ORDER.cancel == ("nsys", "cancel", "--session=s1")
    assert ORDER.export == (
        "nsys", "export", "--type=sqlite", "--force-overwrite=true",
        "--output=/scratch/x/timeline.sqlite", "/scratch/x/timeline.nsys-rep",
    )  # fmt: skip
    assert ORDER.convert(Path("/h/QdstrmImporter")) == (
        "/h/QdstrmImporter", "-i", "/scratch/x/timeline.qdstrm",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_an_engine_under_nsys_is_told_nothing_of_its_own_profiler(name: str) -> None:
    recipe = load_recipe(RECIPE.format(engine=name), "r.toml")
    engine, base = ENGINES[name], recipe.configurations[0]
    under = TraceOrder(folder="/t", nsys=ORDER)
    assert engine.command(recipe, base, 1, under) == engine.command(recipe, base, 1)
    added = engine.environment(recipe, base, under)
    assert not [key for key in added if "PROFILER" in key]


def test_vllm_spawns_its_workers_under_nsys_unless_the_recipe_says_otherwise() -> None:
    name, under = "VLLM_WORKER_MULTIPROC_METHOD", TraceOrder(folder="/", nsys=ORDER)
    text = RECIPE.format(engine="vllm")
    recipe = load_recipe(text, "r.toml")
    base, engine = recipe.configurations[0], ENGINES["vllm"]
    assert engine.environment(recipe, base, under)[name] == "spawn"
    assert name not in engine.environment(recipe, base)
    text += f'[baseline.environment]\n{name} = "fork"\n'
    recipe = load_recipe(text, "r.toml")
    base = recipe.configurations[0]
    assert engine.environment(recipe, base, under)[name] == "fork"


@pytest.mark.parametrize(
    "argv",
    [
        (*ORDER.launch, "vllm", "serve", "m"),
        ("/opt/n/target-linux-x64/nsys-launcher", "/scratch/x", "11"),
        ("nsys-tee", "3", "4"),
        ("/opt/n/target-linux-x64/nsys", "--start-agent", "--session-name=s1"),
    ],
)
def test_the_processes_of_nsys_are_not_taken_for_the_server(
    argv: tuple[str, ...],
) -> None:
    assert vllm_role(argv, argv[0]) == "other"
    assert single_role(argv, argv[0]) == "other"


def test_a_server_whose_path_only_ends_in_nsys_is_a_server() -> None:
    assert single_role(("/opt/nsys-models/llama-server",), "llama-server") == "server"


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o755)
    return path


def test_the_importer_lies_beside_the_folder_of_nsys(tmp_path: Path) -> None:
    nsys = program(tmp_path / "v" / "target-linux-x64" / "nsys")
    importer = program(tmp_path / "v" / "host-linux-x64" / IMPORTER)
    found = importer_of(nsys)
    assert found is not None
    assert found.samefile(importer)


def test_the_importer_is_found_beside_a_link_on_the_way_to_nsys(tmp_path: Path) -> None:
    program(tmp_path / "lib" / "arch" / "ns" / "target-linux-x64" / "nsys")
    importer = program(tmp_path / "lib" / "ns" / "host-linux-x64" / IMPORTER)
    bin_dir = tmp_path / "lib" / "ns" / "bin"
    bin_dir.mkdir()
    target = tmp_path / "lib" / "ns" / "target-linux-x64"
    target.symlink_to("../arch/ns/target-linux-x64")
    (bin_dir / "nsys").symlink_to("../target-linux-x64/nsys")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nsys").symlink_to("../lib/ns/bin/nsys")
    found = importer_of(tmp_path / "bin" / "nsys")
    assert found is not None
    assert found.samefile(importer)


def test_a_lone_nsys_has_no_importer(tmp_path: Path) -> None:
    assert importer_of(program(tmp_path / "bin" / "nsys")) is None
    (tmp_path / "loop").symlink_to("loop")
    assert importer_of(tmp_path / "loop") is None
