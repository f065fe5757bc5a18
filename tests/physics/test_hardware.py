"""The hardware table and its tolerant names."""

import pytest

from stepscope.physics.hardware import find_gpu, gpu_names


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("NVIDIA H200", "H200"), ("h200", "H200"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"), ("NVIDIA H100 PCIe", "H100-PCIe"),
        ("NVIDIA H100 NVL", "H100-NVL"), ("NVIDIA H20", "H20"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM-40GB"),
        ("NVIDIA A100 80GB PCIe", "A100-PCIe-80GB"),
        ("NVIDIA B200", "B200"), ("NVIDIA B300 SXM6 AC", "B300"),
        ("NVIDIA GB200", "GB200"), ("NVIDIA L4", "L4"), ("NVIDIA L40S", "L40S"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTX-PRO-6000"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX-6000-Ada"),
        ("AMD Instinct MI300X OAM", "MI300X"), ("Gaudi 3", "Gaudi-3"),
        ("TPU v6e", "TPU-v6e"),
    ],
)  # fmt: skip
def test_a_drivers_name_is_understood(said: str, name: str) -> None:
    gpu = find_gpu(said)
    assert gpu is not None
    assert gpu.name == name


@pytest.mark.parametrize(
    "said",
    [
        "", "NVIDIA", "H2000", "H20X", "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4090 D", "NVIDIA H200 MIG 1g.18gb", "B", "RTX",
    ],
)  # fmt: skip
def test_another_device_is_not_mistaken_for_a_known_one(said: str) -> None:
    assert find_gpu(said) is None


@pytest.mark.parametrize("name", gpu_names())
def test_every_figure_is_plausible_and_has_a_dated_source(name: str) -> None:
    gpu = find_gpu(name)
    assert gpu is not None
    assert 10e9 < gpu.memory_bytes < 1e12
    assert 100e9 < gpu.bandwidth_bytes_per_s < 20e12
    assert "bf16" in gpu.peaks
    assert gpu.peaks.get("fp8", gpu.peaks["bf16"]) >= gpu.peaks["bf16"]
    figures = {"memory_bytes", "bandwidth_bytes_per_s"}
    figures |= {f"peak.{kind}" for kind in gpu.peaks}
    figures |= {
        f
        for f in ("power_w", "link_bytes_per_s", "pcie_bytes_per_s")
        if getattr(gpu, f) is not None
    }
    assert set(gpu.sources) == figures
    assert all(text.split(", ")[-1][:2] == "20" for text in gpu.sources.values())


def test_no_two_devices_share_a_name() -> None:
    for name in gpu_names():
        gpu = find_gpu(name)
        assert gpu is not None
        assert gpu.name == name


def test_a_measured_bandwidth_beats_the_data_sheet() -> None:
    gpu = find_gpu("H200")
    assert gpu is not None
    measured = gpu.with_bandwidth(4.2e12, "measured")
    assert (measured.bandwidth_bytes_per_s, measured.bandwidth_source) == (
        4.2e12,
        "measured",
    )
    assert measured.peaks == gpu.peaks
