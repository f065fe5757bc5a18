"""NVML on a machine with GPUs, and what becomes of it on one without."""

import pytest

from stepscope.clock import SystemClock
from stepscope.session.nvml import Gpus, check


def test_without_a_driver_there_are_no_gpus_and_no_error() -> None:
    gpus = Gpus.open()
    if gpus is not None:
        gpus.close()
        pytest.skip("this machine has GPUs")
    assert gpus is None


@pytest.mark.gpu
def test_each_gpu_tells_power_clock_memory_and_its_counters() -> None:
    gpus = Gpus.open()
    assert gpus is not None
    found = check(gpus, SystemClock())
    gpus.close()
    assert len(found.samples) == len(found.gpus) > 0
    for gpu, sample in zip(found.gpus, found.samples, strict=True):
        assert sample.power_w is not None
        assert sample.power_limit_w is not None
        assert 0 < sample.power_w < 1.2 * sample.power_limit_w
        assert sample.sm_clock_mhz is not None
        assert sample.sm_clock_max_mhz is not None
        assert 0 < sample.sm_clock_mhz <= sample.sm_clock_max_mhz
        assert sample.memory_used_bytes is not None
        assert sample.memory_total_bytes is not None
        assert sample.memory_used_bytes < sample.memory_total_bytes
        if gpu.gpm:
            assert sample.sm_active_pct is not None
            assert 0 <= sample.sm_active_pct <= 100
            assert sample.dram_bw_pct is not None
