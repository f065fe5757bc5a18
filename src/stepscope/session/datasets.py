"""Files of prompts before anything runs: checked, and known by their hash."""

import msgspec

from stepscope.errors import RecipeError
from stepscope.load.datasets.choose import TIMED, n_requests_in, sha256_of
from stepscope.load.of_workload import source_of
from stepscope.recipe.records import Plan


def with_datasets(plan: Plan) -> Plan:
    """Return the plan with the hash of each file of prompts, every line checked.

    Raises:
        RecipeError: A file is missing, a line of it is wrong, or a trace is shorter
            than what is to be sent of it.
    """
    hashes: dict[str, str] = {}
    held: dict[str, int] = {}
    launches = []
    for launch in plan.launches:
        cells = []
        for cell in launch.cells:
            work = cell.workload
            path = work.dataset_path
            if path is None:
                cells.append(cell)
                continue
            if path not in held:
                held[path] = n_requests_in(source_of(work))
                hashes[path] = sha256_of(path)
            once = work.arrival == "recorded" or work.dataset in TIMED
            if held[path] < (work.n_prompts if once else 1):
                raise RecipeError(
                    path,
                    f"it holds {held[path]} requests",
                    f"{cell.name} sends {work.n_prompts}",
                    "Lower n_prompts",
                )
            work = msgspec.structs.replace(work, dataset_sha256=hashes[path])
            cells.append(msgspec.structs.replace(cell, workload=work))
        launches.append(msgspec.structs.replace(launch, cells=tuple(cells)))
    return msgspec.structs.replace(plan, launches=tuple(launches))
