"""What a run says of itself before it begins: machine, model, layout, clock."""

import os
import platform
import socket
from pathlib import Path

import msgspec
import psutil

from stepscope import __version__
from stepscope.clock import Clock
from stepscope.engines.definition import EngineDef
from stepscope.errors import RecipeError
from stepscope.recipe.records import Plan, Recipe
from stepscope.run.run import Machine, Run, Timeline
from stepscope.session.nvml import Gpus

_CONTAINERS = ("docker", "kubepods", "containerd", "libpod", "lxc")


def header(
    plan: Plan, recipe_text: str, engine: EngineDef, clock: Clock, gpus: Gpus | None
) -> Run:
    """Return the header of a new run.

    Raises:
        RecipeError: ``model_config`` of the recipe is no JSON file.
    """
    recipe = plan.recipe
    anchor = clock.wall_anchor()
    layout = engine.layout(plan.launches[0].configuration.flags)
    names = () if gpus is None else gpus.identities
    served = None if recipe.server is None else recipe.server.engine
    return Run(
        id=f"{recipe.name}-{anchor.unix_ns // 1_000_000_000}",
        engine=served or recipe.engine,
        timeline=Timeline(
            kind="monotonic",
            anchor_at_ns=anchor.monotonic_ns,
            anchor_unix_ns=anchor.unix_ns,
        ),
        created_unix_ns=anchor.unix_ns,
        tool_version=__version__,
        gpu=recipe.gpu or (names[0].name if names else None),
        n_gpus=layout.tp * layout.dp * layout.pp if recipe.gpu or names else None,
        layout=layout,
        machine=machine(gpus),
        model=engine.request_model(recipe),
        model_config=model_config(recipe, engine),
        recipe_text=recipe_text,
        cost=recipe.cost,
    )


def machine(gpus: Gpus | None) -> Machine:
    """Return where we run: the identity of a session."""
    identities = () if gpus is None else gpus.identities
    return Machine(
        host=socket.gethostname(),
        kernel=platform.release(),
        cpu_model=_cpu_model(),
        n_cpus=len(os.sched_getaffinity(0)),
        memory_bytes=int(psutil.virtual_memory().total),
        gpus=tuple(g.name for g in identities),
        gpu_uuids=tuple(g.uuid or "" for g in identities),
        driver=None if gpus is None else gpus.driver,
        container=_container(),
    )


def model_config(recipe: Recipe, engine: EngineDef) -> str | None:
    """Return config.json's text: as the recipe says, the engine's, or the model's.

    Raises:
        RecipeError: The recipe names a file that is no JSON.
    """
    if recipe.model_config is not None:
        try:
            return _json_text(Path(recipe.model_config))
        except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
            found = getattr(error, "strerror", None) or str(error)
            raise RecipeError(
                f"model_config = {recipe.model_config!r}",
                found,
                "expected a config.json",
            ) from error
    if engine.model_config is not None:
        return engine.model_config
    for path in _model_folders(recipe.model or ""):
        try:
            return _json_text(path / "config.json")
        except (OSError, UnicodeDecodeError, msgspec.DecodeError):
            continue
    return None


def _json_text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    msgspec.json.decode(text)
    return text


def _model_folders(model: str) -> list[Path]:
    """Return where a model may lie: its own folder, or snapshots of the hub's cache."""
    if not model:
        return []
    home = os.environ.get("HF_HOME", "~/.cache/huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE", f"{home}/hub")).expanduser()
    repository = cache / f"models--{model.replace('/', '--')}" / "snapshots"
    snapshots = sorted(repository.iterdir()) if repository.is_dir() else []
    return [Path(model).expanduser(), *snapshots]


def _cpu_model() -> str | None:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return None


def _container() -> str | None:
    """Return what tells this container from another; None: not in one we know."""
    try:
        groups = Path("/proc/self/cgroup").read_text(encoding="utf-8")
    except OSError:
        groups = ""
    for line in groups.splitlines():
        path = line.rpartition(":")[2]
        if any(word in path for word in _CONTAINERS):
            return path.rpartition("/")[2]
    return "docker" if Path("/.dockerenv").exists() else None
