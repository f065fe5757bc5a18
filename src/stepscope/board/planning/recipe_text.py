"""A draft as the text of a recipe: the run's own, or one for an imported run."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from stepscope.analysis.records import Analysis
from stepscope.board.planning.command import command_keys
from stepscope.board.planning.draft import Draft
from stepscope.board.planning.history import History
from stepscope.board.planning.toml_text import toml_text
from stepscope.errors import RecipeError, RefusedError
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Plan, ServedEngine
from stepscope.run.run import Run

#: Keys of a workload that belong to an open loop or to a fixed number of prompts.
_NOT_OURS = (
    "n_prompts", "request_rate", "arrivals", "burstiness", "duration_s",
    "max_concurrency", "ramp_start_rps", "ramp_end_rps",
)  # fmt: skip
_WHERE = "the next recipe"
#: Where the price of an imported run is from.
PRICED_BY = "run.usd_per_gpu_hour in import.toml"


@dataclass(frozen=True, slots=True)
class Base:
    """What a next recipe starts from.

    Attributes:
        data: Keys of a recipe, workload without sizes.
        fill_in: What a person must fill in or look at.
    """

    data: Mapping[str, Any]
    fill_in: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """A recipe's text and what it expands to."""

    text: str
    plan: Plan


def base_of(run: Run, analysis: Analysis, history: History) -> Base:
    """Return what the next recipe keeps of this run.

    An import that does not say what was asked gets the tokens that were counted.

    Raises:
        RefusedError: Nothing says how long requests were, or the run's own recipe is
            none.
    """
    if run.recipe_text is not None:
        return Base(_own_recipe(run.id, run.recipe_text), ())
    workload, counted = _workload(run, analysis)
    data, notes = _server(run, history)
    notes += counted
    if run.gpu is not None:
        data["gpu"] = run.gpu
    if run.model_config is not None:
        notes.append(
            'model_config = "..." (the path of its config.json) gives the byte floor'
        )
    if run.cost is None:
        notes.append(f"{PRICED_BY} prices a plan of this import")
    else:
        data["cost"] = {
            k: getattr(run.cost, k)
            for k in run.cost.__struct_fields__
            if getattr(run.cost, k)
        }
    data["workload"] = workload
    return Base(data, tuple(notes))


def _own_recipe(run_id: str, text: str) -> dict[str, Any]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _no_recipe(run_id, f"its recipe is no TOML ({error})") from error
    if not isinstance(data.get("workload"), dict):
        raise _no_recipe(run_id, "its recipe has no [workload]")
    return data


def _no_recipe(run_id: str, found: str) -> RefusedError:
    return RefusedError(
        run_id,
        found,
        "the recipe that it was measured by, to extend it",
        "Plan from a run whose recipe.toml is as stepscope run kept it",
    )


def _server(run: Run, history: History) -> tuple[dict[str, Any], list[str]]:
    name = "".join(c if c.isascii() and c.isalnum() else "-" for c in run.id).strip("-")
    data: dict[str, Any] = {"name": name[:50] or "imported", "engine": history.engine}
    if history.engine == "url":
        data["model"] = run.model or "FILL-IN"
        data["server"] = {"base_url": "http://127.0.0.1:8000"}
        if run.engine in get_args(ServedEngine):
            data["server"]["engine"] = run.engine
        return data, [
            f'model = "{data["model"]}": as requests call it',
            "server.base_url: where the server runs; nothing says how it was started",
        ]
    command = next(x.command for x in run.launches if x.command)
    keys, notes = command_keys(history.engine, command)
    return {**data, **keys}, notes


def _workload(run: Run, analysis: Analysis) -> tuple[dict[str, Any], list[str]]:
    work = next((c.workload for c in run.cells if not c.warm_up), None)
    cell = next((c for c in analysis.cells if not c.warm_up), None)
    n_ok = 0 if cell is None else cell.n_requests - cell.n_failed
    if work is None or cell is None or n_ok < 1:
        raise _no_tokens(run)
    found: dict[str, Any] = {}
    notes: list[str] = []
    for key, asked, counted in (
        ("input_tokens", work.input_tokens, cell.input_tokens),
        ("output_tokens", work.output_tokens, cell.output_tokens),
    ):
        if asked is None and not counted:
            raise _no_tokens(run)
        found[key] = asked or max(round((counted or 0) / n_ok), 1)
        if asked is None:
            notes.append(f"{key} = {found[key]} is the mean that was counted")
    if work.endpoint != "/v1/completions":
        found["endpoint"] = work.endpoint
    if not work.ignore_eos:
        found["ignore_eos"] = False
    return found, notes


def _no_tokens(run: Run) -> RefusedError:
    return RefusedError(
        run.id,
        "it does not say how many tokens its requests had",
        "input_tokens and output_tokens of its cells, to write a recipe",
        "Give them in import.toml",
    )


def written(base: Base, draft: Draft) -> Written:
    """Return the recipe of a draft, checked by the loader.

    Raises:
        RecipeError: The run's own recipe can not be extended so.
    """
    data = dict(base.data)
    data["name"] = f"{data.get('name', 'run')}"[:58] + "-next"
    data["workload"] = _sizes(data["workload"], draft)
    data["warm_up"] = _warm_up(data.get("warm_up", {}), draft)
    for key in ("n_launches", "patch", "capture"):
        data.pop(key, None)  # each is what the draft needs, and nothing else
    if draft.n_launches > 1:
        data["n_launches"] = draft.n_launches
    patches = _patches(base.data, draft)
    if patches:
        data["patch"] = patches
    capture = _capture(base.data.get("capture", ()), draft)
    if capture:
        data["capture"] = capture
    text = toml_text(data)
    return Written(text, expand(load_recipe(text, _WHERE)))


def _sizes(workload: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    kept = {k: v for k, v in workload.items() if k not in _NOT_OURS}
    kept["concurrency"] = [
        c if n == 1 else f"{c}x{n}" for c, n in sorted(draft.repeats.items())
    ]
    kept["waves"] = max(int(workload.get("waves", 2)), draft.waves)
    return kept


def _warm_up(table: Mapping[str, Any], draft: Draft) -> dict[str, Any]:
    blocks = max(int(table.get("blocks", 6)), draft.blocks)
    found = {**table, "blocks": blocks}
    if found.get("max_blocks", blocks) < blocks:
        del found["max_blocks"]
    return found


def _patches(data: Mapping[str, Any], draft: Draft) -> list[dict[str, Any]]:
    kept = [p for p in data.get("patch", []) if p["name"] in draft.configurations]
    new: list[dict[str, Any]] = []
    for patch in draft.patches:
        table: dict[str, Any] = {"name": patch.name}
        if patch.flags:
            table["flags"] = dict(patch.flags)
        if patch.cpus is not None:
            table["cpus"] = patch.cpus
        new.append(table)
    return [*kept, *new]


def _capture(asked: object, draft: Draft) -> dict[str, Any]:
    """Return the table: iterations are logged where they were, traces as needed."""
    found: dict[str, Any] = {}
    words = asked if isinstance(asked, list) else []
    table = asked if isinstance(asked, dict) else {}
    kept = "iteration-details" in words or table.get("iteration_details") is True
    if draft.details or kept:
        found["iteration_details"] = True
    if draft.traces:
        found["concurrency"] = sorted(draft.traces)
        # A patch that is new has no open entry that a timeline of it would decide.
        found["configurations"] = ["baseline", *sorted(draft.configurations)]
    return found


def fits(base: Base, draft: Draft) -> Draft | None:
    """Return the draft, or less of it, where a recipe can hold it; None: none can.

    A run's own recipe may contradict a need, such as a context that is full.
    """
    for tried in (draft, replace(draft, patches=())):
        try:
            written(base, tried)
        except RecipeError:
            continue
        return tried
    return None
