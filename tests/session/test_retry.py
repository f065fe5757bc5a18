"""Boots that fail and are tried again: with a safe change, unchanged, or not at all."""

import gzip
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.session.scripted_session import ScriptedSite, World

from stepscope.analysis.analyze import analyze
from stepscope.analysis.boot.diagnose import diagnose
from stepscope.archive.reader import open_run
from stepscope.clock import SystemClock
from stepscope.findings import Finding
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.run.run import AppliedFix, Run
from stepscope.run.serverlog import BootVerdict, Fix, ServerLog
from stepscope.session.execute import Order, Outcome, execute, execute_at
from stepscope.session.nvml import GpuIdentity
from stepscope.session.server import Server, ServerOrder

DATA = Path(__file__).parents[2].parent / "shared" / "data"
NO_KV = DATA / "h200x1-boot-no-kv-memory" / "server.log"
TENANT = DATA / "h200x1-boot-orphan-holds-memory" / "server.log"

LOGS = Path(__file__).parents[1] / "data" / "logs"

RECIPE = f"""
name = "picky"
engine = "vllm"
model = "some/model"
executable = "{sys.executable}"
port = 18000
[boot]
retry = 2
[baseline.flags]
gpu-memory-utilization = 0.43
max-model-len = 4096
[workload]
input_tokens = 8
output_tokens = 4
concurrency = [1, 2]
n_prompts = 2
[warm_up]
blocks = 1
"""


def real_doctor(log: ServerLog, exit_code: int | None) -> BootVerdict:
    return diagnose(log, exit_code=exit_code)


class LoggingSite(ScriptedSite):
    """Every server of it writes the next of ``logs``."""

    logs: list[bytes]

    def server(self, order: ServerOrder) -> Server:
        self.log = self.logs.pop(0) if self.logs else b"INFO fine\n"
        return super().server(order)


def play(
    world: World,
    boots: list[int],
    logs: list[bytes],
    text: str = RECIPE,
    *,
    resume: bool = False,
    doctor: object = real_doctor,
) -> tuple[Outcome, Run]:
    site = LoggingSite(world.clock, boots=boots, gpus=world.site.gpus)
    site.logs, site.events = logs, world.site.events
    world.site = site
    plan = expand(load_recipe(text, "recipe.toml"))
    order = Order(plan, text, world.out, resume, doctor)  # type: ignore[arg-type]  # some tests script it
    outcome = execute_at(site, order, world.clock, world.notes, world.halt)
    return outcome, open_run(world.out)


def told(run: Run, code: str) -> list[Finding]:
    return [f for f in run.findings if f.code == code]


def test_a_boot_that_fails_for_want_of_cache_boots_with_the_share_of_its_own_log(
    world: World,
) -> None:
    outcome, run = play(world, [-1, 1], [NO_KV.read_bytes()])
    first, second = run.launches
    assert (first.name, second.name) == ("baseline-l0", "baseline-l0-try1")
    assert (first.ready, second.ready) == (False, True)
    assert second.retry_of == first.name
    assert second.applied_fixes == (
        AppliedFix(
            flag="gpu-memory-utilization",
            before=0.43,
            value=0.44,
            cause="no-kv-memory",
            failed_launch="baseline-l0",
        ),
    )
    assert "0.43" in first.command
    assert "0.44" in second.command
    assert "0.43" not in second.command
    assert first.exit_code == 1
    assert first.failure is not None
    assert first.log is not None
    assert first.log.failures
    assert outcome.n_measured == 2
    assert outcome.failures == ()
    assert {(c.launch, c.status) for c in run.cells} == {(second.name, "done")}


def test_the_finding_says_the_change_and_that_it_is_no_optimization(
    world: World,
) -> None:
    _, run = play(world, [-1, 1], [NO_KV.read_bytes()])
    (fixed,) = told(run, "boot-fixed")
    assert fixed.launch == "baseline-l0-try1"
    assert "--gpu-memory-utilization 0.44 instead of 0.43" in fixed.message
    assert "not an optimization" in fixed.message


def test_the_analysis_tells_of_both_starts_and_marks_what_was_measured(
    world: World,
) -> None:
    text = (
        RECIPE
        + """[[patch]]
name = "chunked"
[patch.flags]
max-num-batched-tokens = 2048
"""
    )
    _, run = play(world, [-1, 1, 1], [NO_KV.read_bytes()], text)
    analysis = analyze(run)
    failed, mended, other = analysis.boot
    assert (failed.retried_by, failed.verdict["cause"]) == (
        mended.launch,
        "no-kv-memory",
    )
    assert (mended.retry_of, mended.ready, mended.cold) == (failed.launch, True, None)
    assert (other.cold, other.applied_fixes) == (True, ())
    marked = [f.cell for f in analysis.findings if f.code == "boot-fixed" and f.cell]
    assert marked == ["baseline-c1-r0", "baseline-c2-r0"]
    assert {c.verdict for c in analysis.comparisons} == {"undetermined"}
    assert "boot-fixes-differ" in {f.code for f in analysis.findings}


def test_without_the_recipe_s_word_nothing_is_tried_again(world: World) -> None:
    text = RECIPE.replace("[boot]\nretry = 2\n", "")
    outcome, run = play(world, [-1, 1], [NO_KV.read_bytes()], text)
    assert [x.name for x in run.launches] == ["baseline-l0"]
    assert outcome.n_measured == 0
    assert not [f for f in run.findings if f.code.startswith("boot-")]


def test_retries_end_at_the_recipe_s_number(world: World) -> None:
    def lower(log: ServerLog, exit_code: int | None) -> BootVerdict:
        lower.value -= 0.01  # type: ignore[attr-defined]  # a function's own memory
        return verdict(share(round(lower.value, 2)))  # type: ignore[attr-defined]

    lower.value = 0.43  # type: ignore[attr-defined]
    outcome, run = play(world, [-1, -1, -1, 1], [], doctor=lower)
    assert [x.name for x in run.launches] == [
        "baseline-l0",
        "baseline-l0-try1",
        "baseline-l0-try2",
    ]
    assert [x.retry_of for x in run.launches] == [
        None,
        "baseline-l0",
        "baseline-l0-try1",
    ]
    assert [f.value for f in run.launches[2].applied_fixes] == [0.41]
    assert run.launches[2].applied_fixes[0].before == 0.43
    assert outcome.n_measured == 0
    assert len(outcome.failures) == 1
    assert {c.status for c in run.cells} == {"failed"}
    assert {c.launch for c in run.cells} == {"baseline-l0-try2"}


def share(value: float | None, confidence: str = "medium") -> Fix:
    return fix("--gpu-memory-utilization", "lower", value, confidence)


def fix(
    flag: str,
    direction: str,
    value: float | str | None,
    confidence: str = "high",
) -> Fix:
    return Fix(
        flag=flag, direction=direction, value=value, effect="", confidence=confidence
    )


def verdict(*fixes: Fix, cause: str = "gpu-oom-capture") -> BootVerdict:
    return BootVerdict(outcome="failed", cause=cause, fixes=fixes)


@pytest.mark.parametrize(
    ("fixes", "why"),
    [
        ((), "names no fix"),
        ((share(None),), "no computed value"),
        ((share(0.4, "low"),), "guessed"),
        ((share(0.43),), "is 0.43 already"),
        ((share(0.5),), "is 0.43 already"),
        ((fix("--gpu-memory-utilization", "raise", 0.97),), "beyond 0.95"),
        ((fix("--max-model-len", "lower", 11),), "up to 12 tokens"),
        ((fix("--max-num-seqs", "lower", 1),), "2 requests are in flight"),
        ((fix("--max-model-len", "raise", 8192),), "may only be lowered"),
        ((fix("--tensor-parallel-size", "raise", 2),), "none that may be changed"),
        ((fix("--dtype", "set", "half"),), "none that may be changed"),
        ((fix("--quantization", "set", "fp8"),), "none that may be changed"),
        ((fix("--enforce-eager", "set", "true"),), "none that may be changed"),
        ((fix("--max-num-batched-tokens", "lower", 2048),), "none that may be"),
        ((fix("--tensor-parallel-size", "raise", 2), share(0.4)), "none that may be"),
    ],
)
def test_a_fix_that_is_not_safe_is_not_applied_and_the_reason_is_told(
    world: World, fixes: tuple[Fix, ...], why: str
) -> None:
    outcome, run = play(world, [-1, 1], [], doctor=lambda *_: verdict(*fixes))
    assert [x.name for x in run.launches] == ["baseline-l0"]
    (finding,) = told(run, "boot-not-retried")
    assert why in finding.message
    assert outcome.n_measured == 0


@pytest.mark.parametrize(
    "good",
    [
        share(0.4),
        fix("--gpu-memory-utilization", "raise", 0.44),
        fix("--max-model-len", "lower", 12),
        fix("--max-num-seqs", "lower", 2),
    ],
)
def test_a_fix_to_the_edge_of_what_the_workload_needs_is_applied(
    world: World, good: Fix
) -> None:
    outcome, run = play(world, [-1, 1], [], doctor=lambda *_: verdict(good))
    assert run.launches[1].applied_fixes[0].value == good.value
    assert outcome.n_measured == 2


def test_where_one_fix_would_spoil_the_measurement_the_next_has_its_turn(
    world: World,
) -> None:
    fixes = (
        fix("--max-model-len", "lower", 4),
        fix("--gpu-memory-utilization", "raise", 0.5),
    )
    _, run = play(world, [-1, 1], [], doctor=lambda *_: verdict(*fixes))
    assert [f.flag for f in run.launches[1].applied_fixes] == ["gpu-memory-utilization"]


def test_a_flag_that_the_recipe_compares_is_never_changed(world: World) -> None:
    patch = '\n[[patch]]\nname = "other"\n[patch.flags]\n'
    for line in ("gpu-memory-utilization = 0.6\n", "gpu-memory-utilization = false\n"):
        text = RECIPE + patch + line
        new = World(world.out.with_name(f"run{len(line)}"), world.site, world.clock,
                    world.notes)  # fmt: skip
        _, run = play(new, [-1, 1], [NO_KV.read_bytes()], text)
        assert [x.name for x in run.launches] == ["baseline-l0", "other-l0"]
        (finding,) = told(run, "boot-not-retried")
        assert "is what the recipe compares" in finding.message


def test_later_launches_of_a_configuration_start_with_what_the_first_needed(
    world: World,
) -> None:
    text = "n_launches = 2\n" + RECIPE
    outcome, run = play(world, [-1, 1, 1], [NO_KV.read_bytes()], text)
    assert [x.name for x in run.launches] == [
        "baseline-l0",
        "baseline-l0-try1",
        "baseline-l1",
    ]
    assert run.launches[2].retry_of is None
    assert run.launches[2].applied_fixes == run.launches[1].applied_fixes
    assert "0.44" in run.launches[2].command
    assert outcome.n_measured == 4
    assert {f.launch for f in told(run, "boot-fixed")} == {
        "baseline-l0-try1",
        "baseline-l1",
    }


def test_earlier_launches_without_the_change_are_named(world: World) -> None:
    text = "n_launches = 2\n" + RECIPE
    _, run = play(world, [1, -1, 1], [b"INFO fine\n", NO_KV.read_bytes()], text)
    (finding,) = told(run, "boot-fixed")
    assert finding.launch == "baseline-l1-try1"
    assert "earlier launches of the configuration ran without it" in finding.message


def test_a_resumed_run_starts_with_what_was_needed_before(world: World) -> None:
    text = "n_launches = 2\n" + RECIPE
    ask = world.halt.ask

    def stop_here(site: ScriptedSite, spec: object, stop: object) -> None:
        ask()

    site = LoggingSite(world.clock, boots=[-1, 1])
    site.logs, site.drives = (
        [NO_KV.read_bytes()],
        {"baseline-c1-r0": stop_here},
    )  # lets the load run
    plan = expand(load_recipe(text, "recipe.toml"))
    order = Order(plan, text, world.out, doctor=real_doctor)
    execute_at(site, order, world.clock, world.notes, world.halt)
    outcome, run = play(world.again(), [1, 1], [], text, resume=True)
    assert [x.name for x in run.launches] == [
        "baseline-l0",
        "baseline-l0-try1",
        "baseline-l0-resume1",
        "baseline-l1",
    ]
    assert all(x.applied_fixes for x in run.launches[1:])
    assert outcome.n_measured == 4


def test_a_boot_that_was_interrupted_is_not_tried_again(world: World) -> None:
    world.halt.ask()
    _, run = play(world, [-1, 1], [NO_KV.read_bytes()])
    assert not [x for x in run.launches if x.retry_of]


@dataclass
class ScriptedGpus:
    """One GPU of 139.8 GiB; ``held`` GiB in use, look by look, the last for ever."""

    held: list[float]
    driver: str | None = None
    n_looks: int = field(default=0)

    @property
    def identities(self) -> tuple[GpuIdentity, ...]:
        total = int(139.8 * (1 << 30))
        return (
            GpuIdentity(index=0, name="H200", uuid=None, memory_bytes=total, gpm=False),
        )

    def used_bytes(self) -> list[int | None]:
        self.n_looks += 1
        held = self.held.pop(0) if len(self.held) > 1 else self.held[0]
        return [int(held * (1 << 30))]

    def holders(self) -> list[object]:
        return []


TENANT_RECIPE = RECIPE.replace("0.43", "0.9")


def test_a_foreign_tenant_is_waited_for_and_the_same_command_started_again(
    world: World,
) -> None:
    gpus = ScriptedGpus([1.0, 127.2, 127.2, 127.2, 60.0, 2.0])
    world.site.gpus = gpus  # type: ignore[assignment]  # scripted NVML
    outcome, run = play(world, [-1, 1], [TENANT.read_bytes()], TENANT_RECIPE)
    first, second = run.launches
    assert second.name == "baseline-l0-try1"
    assert second.retry_of == first.name
    assert second.applied_fixes == ()
    assert second.command == first.command
    (finding,) = told(run, "boot-retried")
    assert "another process" in finding.message
    assert outcome.n_measured == 2
    waited_ns = (second.started_at_ns or 0) - (first.stopped_at_ns or 0)
    assert waited_ns >= 10_000_000_000


def test_a_tenant_that_stays_is_not_run_against_again(world: World) -> None:
    world.site.gpus = ScriptedGpus([1.0, 127.2])  # type: ignore[assignment]  # scripted NVML
    outcome, run = play(world, [-1, 1], [TENANT.read_bytes()], TENANT_RECIPE)
    assert [x.name for x in run.launches] == ["baseline-l0"]
    (finding,) = told(run, "boot-not-retried")
    assert "still holds 127.2 GiB" in finding.message
    assert outcome.n_measured == 0


def test_where_no_gpu_can_be_seen_a_tenant_is_not_run_against_again(
    world: World,
) -> None:
    _, run = play(world, [-1, 1], [TENANT.read_bytes()], TENANT_RECIPE)
    (finding,) = told(run, "boot-not-retried")
    assert "nobody knows when its memory is free" in finding.message


PICKY = """
import os, sys
value = float(sys.argv[sys.argv.index("--gpu-memory-utilization") + 1])
if value < 0.44:
    sys.stdout.write(open(os.environ["PICKY_LOG"]).read())
    sys.exit(1)
port = sys.argv[sys.argv.index("--port") + 1]
os.execv(sys.executable, [sys.executable, "-m", "stepscope.engines.embedded",
                          "--port", port])
"""


def test_a_real_process_with_a_real_log_is_started_again_and_measured(
    world: World, tmp_path: Path
) -> None:
    script = tmp_path / "picky.py"
    script.write_text(PICKY)
    text = (
        RECIPE.replace(f'"{sys.executable}"', f'["{sys.executable}", "{script}"]')
        .replace("port = 18000\n", "")
        .replace(
            "[workload]", f'[baseline.environment]\nPICKY_LOG = "{NO_KV}"\n[workload]'
        )
    )
    plan = expand(load_recipe(text, "recipe.toml"))
    order = Order(plan, text, tmp_path / "real", doctor=real_doctor)
    outcome = execute(order, clock=SystemClock(), observer=world.notes, halt=world.halt)
    run = open_run(tmp_path / "real")
    assert [x.ready for x in run.launches] == [False, True], world.notes.said
    assert run.launches[0].exit_code == 1
    assert run.launches[1].applied_fixes[0].value == 0.44
    assert outcome.n_measured == 2, world.notes.said
    assert all(r.failure is None for c in run.cells for r in c.requests)


def test_a_share_above_the_most_that_is_raised_to_may_still_be_lowered_to(
    world: World,
) -> None:
    # One H200 at 0.9955 ran out of memory while graphs were captured.
    log = gzip.decompress((LOGS / "h200" / "graphs.log.gz").read_bytes())
    text = RECIPE.replace("0.43", "0.9955")
    _, run = play(world, [-1, 1], [log], text)
    fix = run.launches[1].applied_fixes[0]
    assert (fix.before, fix.value, fix.cause) == (0.9955, 0.975, "gpu-oom-capture")
