"""What a prediction says, what it refuses, and what physics moves."""

import json
from collections.abc import Callable

import msgspec
import pytest

from stepscope.analysis.across.stepmodel import step_models
from stepscope.analysis.predict.limits import Limit, batch_limit, flag_value, kv_limit
from stepscope.analysis.predict.move import Asked, move_of
from stepscope.analysis.predict.predict import concurrencies, predict
from stepscope.analysis.predict.records import PredictedPoint, Prediction
from stepscope.analysis.records import Analysis, CellResult
from stepscope.errors import RecipeError, RefusedError
from stepscope.run.run import Launch, Run


def asked(run: Run, analysis: Analysis, *sizes: int, **over: object) -> Prediction:
    (found,) = predict(
        run,
        analysis,
        Asked(concurrencies=sizes, **over),  # type: ignore[arg-type]  # test's own words
    ).predictions
    return found


def whole(point: PredictedPoint) -> tuple[float, float, float]:
    assert point.step_ms is not None
    assert point.step_ci95_ms is not None
    return (point.step_ci95_ms[0], point.step_ms, point.step_ci95_ms[1])


@pytest.fixture(scope="module")
def here(h200: Run, baseline: Analysis) -> dict[int, PredictedPoint]:
    """Predictions for the place that was measured."""
    found = asked(h200, baseline, 2, 8, 24, 32, 64, 128, 256, 512, 800)
    return {p.concurrency: p for p in found.points}


@pytest.fixture(scope="module")
def h100(h200: Run, baseline: Analysis) -> Prediction:
    return asked(h200, baseline, 24, 256, 512, gpu="H100")


def test_the_servers_own_tpot_of_a_cell_that_no_model_saw_is_inside(
    here: dict[int, PredictedPoint], baseline: Analysis
) -> None:
    # 512 is void for its client, so nothing was fitted to it.
    cell = next(c for c in baseline.cells if c.name == "c512_0")
    low, middle, high = whole(here[512])
    assert cell.server_tpot_ms is not None
    assert low < cell.server_tpot_ms < high
    assert middle == pytest.approx(cell.server_tpot_ms, rel=0.05)
    assert here[512].extrapolated
    assert here[512].doublings_outside == pytest.approx(1, abs=0.02)


def test_bytes_that_the_counter_refutes_are_told_beside_a_prediction(
    h200: Run, baseline: Analysis
) -> None:
    """Here counter and floor agree; 20 % read where 40 % are needed is not so."""

    def codes(analysis: Analysis) -> list[str]:
        return [f.code for f in predict(h200, analysis, Asked((64,))).findings]

    assert "bytes-not-moved" not in codes(baseline)
    first, *rest = baseline.floor
    skewed = msgspec.structs.replace(first, needed_pct=39.7, read_pct=20.1)
    other = msgspec.structs.replace(baseline, floor=(skewed, *rest))
    assert "bytes-not-moved" in codes(other)


@pytest.mark.parametrize("name", ["c2_0", "c8_0", "c32_0", "c64_1", "c128_0", "c256_1"])
def test_throughput_at_measured_sizes_is_what_was_measured(
    here: dict[int, PredictedPoint], baseline: Analysis, name: str
) -> None:
    cell = next(c for c in baseline.cells if c.name == name)
    assert cell.concurrency is not None
    point = here[cell.concurrency]
    assert point.measured
    assert point.output_tokens_per_s == pytest.approx(
        cell.output_tokens_per_s, rel=0.05
    )
    assert point.output_tokens_per_s_ci95 is not None
    low, high = point.output_tokens_per_s_ci95
    assert low < (cell.output_tokens_per_s or 0) < high


def test_too_far_is_null_with_a_finding_and_refused_where_nothing_is_left(
    h200: Run, baseline: Analysis
) -> None:
    found = predict(h200, baseline, Asked(concurrencies=(64, 5000)))
    near, far = found.predictions[0].points
    assert near.step_ms is not None
    assert far.step_ms is None
    assert far.output_tokens_per_s is None
    assert [f.code for f in found.findings] == ["too-far"]
    with pytest.raises(RefusedError, match="doublings outside"):
        predict(h200, baseline, Asked(concurrencies=(5000,)))


def test_without_a_step_model_nothing_is_predicted(
    h200: Run, details: Analysis, baseline: Analysis
) -> None:
    few = msgspec.structs.replace(baseline, step_model=())
    with pytest.raises(RefusedError, match="no step model could be fitted"):
        predict(h200, few, Asked(concurrencies=(8,)))
    with pytest.raises(RecipeError, match="no configuration 'eager'"):
        predict(h200, baseline, Asked(concurrencies=(8,), configuration="eager"))
    three = msgspec.structs.replace(h200, id="details")
    with pytest.raises(RefusedError):
        predict(three, details, Asked(concurrencies=(32,)))


def test_another_place_needs_shape_device_and_room(
    h200: Run, baseline: Analysis
) -> None:
    bare = msgspec.structs.replace(h200, model_config=None)
    with pytest.raises(RefusedError, match="no model config"):
        predict(bare, baseline, Asked(concurrencies=(8,), gpu="H100"))
    nameless = msgspec.structs.replace(h200, gpu=None)
    with pytest.raises(RefusedError, match="names no GPU"):
        predict(nameless, baseline, Asked(concurrencies=(8,), tp=2))
    with pytest.raises(RefusedError, match="weights of a rank take"):
        predict(h200, baseline, Asked(concurrencies=(8,), gpu="L4"))
    with pytest.raises(RecipeError, match="'H999' is not known"):
        predict(h200, baseline, Asked(concurrencies=(8,), gpu="H999"))
    with pytest.raises(RecipeError, match="--tp"):
        predict(h200, baseline, Asked(concurrencies=(8,), tp=0))


@pytest.mark.parametrize(
    ("tp", "said"),
    [(3, "32 attention heads"), (64, "32 attention heads"), (1_000_000, "heads")],
)
def test_ranks_that_can_not_share_the_heads_are_refused(
    h200: Run, baseline: Analysis, tp: int, said: str
) -> None:
    with pytest.raises(RecipeError, match=said):
        predict(h200, baseline, Asked(concurrencies=(8,), tp=tp))


def test_kv_heads_are_kept_whole_or_repeated(h200: Run) -> None:
    assert h200.model_config is not None
    heads = json.loads(h200.model_config) | {
        "num_attention_heads": 24,
        "num_key_value_heads": 8,
    }
    other = msgspec.structs.replace(h200, model_config=json.dumps(heads))
    assert move_of(other, Asked((24,), tp=24)) is not None
    with pytest.raises(RecipeError, match="8 KV heads"):
        move_of(other, Asked((24,), tp=12))


def test_the_same_place_by_name_moves_nothing(h200: Run) -> None:
    assert move_of(h200, Asked((24,), gpu="h200", tp=1, dp=1)) is None


def test_less_bandwidth_lengthens_only_the_byte_term(
    here: dict[int, PredictedPoint], h100: Prediction
) -> None:
    was, is_ = whole(here[24]), whole(h100.points[0])
    # 4.80 against 3.35 TB/s; the toll and what is no bytes stay.
    assert 1.2 * was[1] < is_[1] < 4.8 / 3.35 * was[1]
    assert is_[2] / is_[0] > was[2] / was[0]


def test_two_ranks_halve_bytes_and_pay_for_talking(
    here: dict[int, PredictedPoint], h200: Run, baseline: Analysis
) -> None:
    two = asked(h200, baseline, 24, tp=2)
    low, middle, high = whole(two.points[0])
    one = whole(here[24])[1]
    assert 0.5 * one < middle < one
    assert high / low > 1.3
    assert two.layout.tp == 2
    assert any("collectives a step" in text for text in two.assumptions)


def test_kv_memory_of_a_smaller_device_bounds_what_is_in_flight(
    h100: Prediction,
) -> None:
    _, at_limit, above = h100.points
    assert above.limited_by == "kv"
    assert above.ttft_ms is None
    assert above.seqs_per_rank == at_limit.seqs_per_rank
    assert above.output_tokens_per_s == at_limit.output_tokens_per_s
    assert "would hold about" in above.notes[0]


def test_a_graph_that_is_too_small_is_said(here: dict[int, PredictedPoint]) -> None:
    assert not any("captured graph" in note for note in here[512].notes)
    assert any("captured graph" in note for note in here[800].notes)


def test_kv_limit_counts_whole_sequences() -> None:
    assert kv_limit(714_128.0, 1, 512, told=True) == Limit(
        "kv",
        1394.0,
        "KV memory holds 714,128 tokens: 1,394 sequences of 512 tokens,"
        " prompt and answer",
    )
    assert kv_limit(None, 1, 512, told=True) is None
    assert kv_limit(1000.0, 1, None, told=True) is None


@pytest.mark.parametrize(
    ("command", "n"),
    [
        (("vllm", "serve", "m", "--max-num-seqs", "64"), 64),
        (("vllm", "serve", "m", "--max-num-seqs=64"), 64),
        (("llama-server", "-np", "8"), 8),
        (("python", "-m", "stepscope.engines.embedded", "--slots", "16"), 16),
        (("vllm", "serve", "m"), None),
        (("vllm", "serve", "m", "--max-num-seqs"), None),
    ],
)
def test_the_servers_own_limit_is_read_from_its_command(
    command: tuple[str, ...], n: int | None, run_of: Callable[..., Run]
) -> None:
    launch = Launch(name="l0", configuration="base", command=command)
    found = batch_limit(run_of(), launch)
    assert (None if found is None else found.sequences) == n


def test_a_flag_given_twice_is_its_last_value() -> None:
    assert flag_value(("--slots", "4", "--slots=8"), "slots") == "8"
    assert flag_value(("slots", "4"), "slots") is None


def test_requests_above_the_batch_queue_and_the_rate_stays(
    run_of: Callable[..., Run], result_of: Callable[..., CellResult]
) -> None:
    sizes = (1, 2, 4, 8, 16)
    cells = [
        result_of(
            name=f"base-c{c}-r0", concurrency=c, mean_in_flight=float(c),
            tpot_ms=5.0 + c, ttft_ms=20.0 + 5 * c, asked_input_tokens=32,
            asked_output_tokens=48,
        )
        for c in sizes
    ]  # fmt: skip
    launch = Launch(
        name="base-l0", configuration="base", ready=True, command=("x", "--slots", "16")
    )
    models, _ = step_models(cells, 1, None)
    analysis = Analysis(cells=tuple(cells), step_model=models)
    run = msgspec.structs.replace(run_of(), launches=(launch,))
    full, queued = asked(run, analysis, 16, 64).points
    assert full.limited_by is None
    assert full.step_ms == pytest.approx(21.0)
    assert full.output_tokens_per_s == pytest.approx(
        1e3 * 16 * 48 / (100 + 47 * 21), rel=1e-6
    )
    assert full.prefill_share_pct == pytest.approx(100 * 100 / (100 + 47 * 21))
    assert queued.limited_by == "batch"
    assert queued.output_tokens_per_s == full.output_tokens_per_s
    assert queued.step_ms == full.step_ms


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("3,24, 1000", [3, 24, 1000]),
        ("8", [8]),
        ("0", None),
        ("3,,4", None),
        ("-1", None),
        ("2.5", None),
        ("", None),
        ("99999999", None),
    ],
)
def test_concurrencies_are_whole_numbers_with_commas(
    text: str, found: list[int] | None
) -> None:
    assert concurrencies(text) == found
