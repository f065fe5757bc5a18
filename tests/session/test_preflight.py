"""What is found before a server starts."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pytest

from stepscope.engines.catalog import engine_of
from stepscope.errors import RecipeError, SessionError
from stepscope.findings import Finding
from stepscope.recipe.expand import expand
from stepscope.recipe.loader import load_recipe
from stepscope.recipe.records import Configuration, Plan
from stepscope.session.nvml import GpuHolder, GpuIdentity, Gpus
from stepscope.session.phases.preflight import free_port, preflight, visible_gpus

GIB = 1 << 30


def plan(engine: str = "embedded", head: str = "", flags: str = "") -> Plan:
    model = "" if engine == "embedded" else 'model = "org/model"\n'
    model = "" if "model =" in head else model
    text = f"""
name = "p"
engine = "{engine}"
{model}{head}
[baseline.flags]
{flags}
[workload]
input_tokens = 8
output_tokens = 8
concurrency = [1]
"""
    return expand(load_recipe(text, "recipe.toml"))


@dataclass
class TwoGpus:
    """Two GPUs of 140 GiB, of which others use some."""

    used: tuple[int | None, ...] = (0, 0)
    held: tuple[GpuHolder, ...] = ()

    @property
    def identities(self) -> tuple[GpuIdentity, ...]:
        return tuple(
            GpuIdentity(index=i, name="H", uuid=None, memory_bytes=140 * GIB, gpm=False)
            for i in range(2)
        )

    def used_bytes(self) -> list[int | None]:
        return list(self.used)

    def holders(self) -> list[GpuHolder]:
        return list(self.held)


def checked(what: Plan, out: Path, gpus: TwoGpus | None = None) -> tuple[Finding, ...]:
    return preflight(
        what,
        engine_of(what.recipe),
        out,
        what.recipe.port or free_port("127.0.0.1"),
        cast("Gpus | None", gpus),
    )


def test_a_good_machine_has_only_its_missing_gpus_to_tell(tmp_path: Path) -> None:
    codes = [
        f.code for f in checked(plan(), tmp_path / "run") if f.code != "little-disk"
    ]
    assert codes == ["no-gpu-telemetry"]


def test_a_taken_port_names_its_holder(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SessionError) as caught:
            checked(plan(head=f"port = {port}"), tmp_path)
    assert caught.value.exit_code == 3
    assert f"port {port}" in str(caught.value)
    assert f"(pid {os.getpid()})" in str(caught.value)


def test_a_program_that_is_not_on_path_is_named(tmp_path: Path) -> None:
    wanted = plan("llamacpp", 'executable = ["no-such-server"]')
    with pytest.raises(SessionError, match="no-such-server: no such program"):
        checked(wanted, tmp_path)


@pytest.mark.parametrize("model", ["/models/none", "./none", "~/none", "none.gguf"])
def test_a_model_that_looks_like_a_path_must_exist(tmp_path: Path, model: str) -> None:
    wanted = plan("llamacpp", f'executable = ["sh"]\nmodel = "{model}"')
    with pytest.raises(SessionError, match="no such file or folder"):
        checked(wanted, tmp_path)


def test_a_model_of_the_hub_is_left_to_the_engine(tmp_path: Path) -> None:
    checked(plan("llamacpp", 'executable = ["sh"]'), tmp_path)


def vllm(flags: str = "") -> Plan:
    return plan("vllm", 'executable = ["sh"]', flags)


def test_a_boot_that_vllm_would_refuse_is_refused_before_it(tmp_path: Path) -> None:
    holder = GpuHolder(gpu=0, pid=os.getpid(), bytes_held=127 * GIB)
    gpus = TwoGpus((127 * GIB, 0), (holder,))
    with pytest.raises(SessionError) as caught:
        checked(vllm(), tmp_path, gpus)
    text = str(caught.value)
    assert "13.0 of 140.0 GiB are free" in text
    assert f"pid {os.getpid()}" in text
    assert "holds 127.0 GiB" in text
    assert "126.0 GiB" in text
    assert "below 0.09" in text


def test_a_smaller_share_beside_another_tenant_is_only_a_finding(
    tmp_path: Path,
) -> None:
    holder = GpuHolder(gpu=0, pid=os.getpid(), bytes_held=50 * GIB)
    gpus = TwoGpus((50 * GIB, 0), (holder,))
    found = checked(vllm("gpu-memory-utilization = 0.5"), tmp_path, gpus)
    held = [f for f in found if f.code == "gpu-memory-held"]
    assert len(held) == 1
    assert "holds 50.0 GiB of GPU 0" in held[0].message


def test_a_gpu_that_the_layout_does_not_use_may_be_full(tmp_path: Path) -> None:
    checked(vllm(), tmp_path, TwoGpus((0, 139 * GIB)))
    with pytest.raises(SessionError, match="GPU 1"):
        checked(vllm("tensor-parallel-size = 2"), tmp_path, TwoGpus((0, 139 * GIB)))


def test_memory_whose_holder_can_not_be_seen_is_told(tmp_path: Path) -> None:
    found = checked(vllm(), tmp_path, TwoGpus((5 * GIB, None)))
    assert [f.code for f in found if "can not be seen" in f.message] == [
        "gpu-memory-held"
    ]


@pytest.mark.parametrize(
    ("text", "expected"), [("1,0", [1, 0]), ("", []), ("GPU-5f3a", None)]
)
def test_visible_gpus_are_indices_or_unknown(
    text: str, expected: list[int] | None
) -> None:
    found = visible_gpus(
        Configuration(name="c", environment={"CUDA_VISIBLE_DEVICES": text})
    )
    assert found == expected


def test_a_key_that_is_not_set_is_said_before_anything_boots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SERVER_KEY", raising=False)
    keyed = plan(head='api_key_env = "SERVER_KEY"\n')
    with pytest.raises(RecipeError, match="SERVER_KEY is not set"):
        preflight(
            keyed, engine_of(keyed.recipe), tmp_path, free_port("127.0.0.1"), None
        )
    monkeypatch.setenv("SERVER_KEY", "open")
    preflight(keyed, engine_of(keyed.recipe), tmp_path, free_port("127.0.0.1"), None)
