"""Rates from timed passes; the passes themselves need a GPU."""

import importlib.util

import pytest

from stepscope.errors import SessionError
from stepscope.session.bandwidth import measure_bandwidth, summary


def test_the_best_reading_kernel_counts_by_its_median() -> None:
    found = summary(
        "GPU",
        1000,
        {
            "sum": (1000, (2.0, 1.0, 4.0)),
            "amax": (1000, (1.0, 1.1, 1.0)),
            "copy": (2000, (1.5, 1.5, 1.5)),
        },
    )
    assert found.read_kernel == "amax"
    assert found.read_bytes_per_s == 1000
    assert found.spread_pct == pytest.approx(10)
    assert found.copy_bytes_per_s == pytest.approx(2000 / 1.5)
    assert found.rates["sum"] == 500


def test_a_copy_is_no_read_however_fast() -> None:
    passes = {"sum": (10, (1.0,)), "copy": (1000, (1.0,))}
    assert summary("GPU", 10, passes).read_kernel == "sum"


@pytest.mark.parametrize("seconds", [(), (0.0,), (1.0, -1.0)])
def test_a_timer_that_stands_still_is_refused(seconds: tuple[float, ...]) -> None:
    with pytest.raises(SessionError, match="took no time"):
        summary("GPU", 10, {"sum": (10, seconds), "copy": (20, (1.0,))})


@pytest.mark.skipif(
    importlib.util.find_spec("torch") is not None, reason="PyTorch is installed"
)
def test_without_pytorch_it_says_where_to_get_it() -> None:
    with pytest.raises(SessionError, match="PyTorch is not installed"):
        measure_bandwidth()


@pytest.mark.gpu
def test_a_gpu_reads_below_its_data_sheet() -> None:
    from stepscope.physics.hardware import find_gpu

    found = measure_bandwidth()
    sheet = find_gpu(found.gpu)
    assert sheet is not None
    assert 0.5 < found.read_bytes_per_s / sheet.bandwidth_bytes_per_s < 1.02
