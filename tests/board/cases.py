"""What is taken from two recorded runs, or planted in them: a table for the tests."""

from tests.board.perturbing import (
    Change,
    after,
    beside_idle_gpus,
    coarse,
    compiling_in,
    drafted,
    host_memory,
    of_cells,
    of_config,
    of_gpu,
    of_launches,
    of_log,
    of_run,
    of_samples,
    power,
    preempted,
    prefill_in_steps,
    prefix_hits,
    processes,
    replace,
    resolved,
    restarted,
    same,
    scraped,
    server_tpot,
    slower,
    then,
)

from stepscope.recipe.records import Layout

FULL = scraped(
    kv_cache_usage_perc=1.0, num_requests_waiting=20.0, num_requests_running=20.0
)
ROOM = scraped(
    kv_cache_usage_perc=0.1, num_requests_waiting=200.0, num_requests_running=8.0
)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
NO_METRICS = then(
    of_samples(metrics=()),
    of_cells(lambda c: replace(c, metrics_before=None, metrics_after=None)),
)

#: Recorded run -> what is done to it -> how.
CASES: dict[str, dict[str, Change]] = {
    "baseline": {
        "nothing": same,
        "no telemetry": of_samples(gpu=(), host=(), process=()),
        "no server log": of_launches(lambda x: replace(x, log=None)),
        "no server metrics": NO_METRICS,
        "no timelines": of_run(traces=(), step_budgets=()),
        "no config.json": of_run(model_config=None),
        "GPU named H100": of_run(gpu="NVIDIA H100 80GB HBM3"),
        "GPU named H100, no server log": then(
            of_run(gpu="NVIDIA H100 80GB HBM3"),
            of_launches(lambda x: replace(x, log=None)),
        ),
        "GPU not known": of_run(gpu="Foo 9000"),
        "telemetry at 1 Hz": coarse,
        "seven idle GPUs sampled beside it": beside_idle_gpus(7),
        "client TPOT 20 % above the server's": server_tpot(1 / 1.2),
        "client TPOT 17 % below the server's": server_tpot(1.2),
        "API server at 99 % of a core, GPU at 40 %": then(
            processes(api_server=99.0, engine_core=30.0), of_gpu(util_pct=40.0)
        ),
        "DRAM counter at 30 %": of_gpu(dram_bw_pct=30.0),
        "DRAM counter at 130 %": of_gpu(dram_bw_pct=130.0),
        "GPU utilization 0 %": of_gpu(util_pct=0.0),
        "SMs active 40 %, tensor pipes 10 %": of_gpu(
            tensor_pct=10.0, sm_active_pct=40.0
        ),
        "KV full, requests wait, 30 preempted": then(FULL, preempted(30.0)),
        "KV full, nobody waits": scraped(
            kv_cache_usage_perc=1.0, num_requests_waiting=0.0
        ),
        "weights quantized, config silent": resolved(quantization="fp8"),
        "config of 60 layers, not 48": of_config(num_hidden_layers=60),
        "config of 24 layers, not 48": of_config(num_hidden_layers=24),
        "config without the number of experts": of_config(num_experts=None),
        "config without experts a token": of_config(num_experts_per_tok=None),
        "config says FP8": of_config(quantization_config=FP8),
        "tensor parallel over 8, one rank traced": of_run(
            layout=Layout(tp=8), n_gpus=8
        ),
        "the log says so, the run does not": resolved(tensor_parallel_size=8),
        "data parallel over 8, one rank traced": of_run(
            layout=Layout(dp=8, ep=8), n_gpus=8
        ),
        "one of three repeats 30 % slower": slower("c64_1", 1.3),
        "compiling in a repeat that agrees with two others": compiling_in("c64_1"),
        "2.5 tokens a step by drafts": drafted(2.5),
        "eager mode in the log": resolved(cudagraph_mode="NONE", enforce_eager=True),
    },
    "iteration-details": {
        "nothing": same,
        "no telemetry": of_samples(gpu=(), host=(), process=()),
        "no server log": of_launches(lambda x: replace(x, log=None)),
        "no server metrics": NO_METRICS,
        "no iteration lines": of_log(
            lambda log: replace(
                log, events=tuple(e for e in log.events if e.kind != "iteration")
            )
        ),
        "no config.json": of_run(model_config=None),
        "no DRAM counter": of_gpu(dram_bw_pct=None),
        "no tensor counter": of_gpu(tensor_pct=None),
        "GPU named H100": of_run(gpu="NVIDIA H100 80GB HBM3"),
        "seven idle GPUs sampled beside it": beside_idle_gpus(7),
        "API server at 99 % of a core, GPU at 40 %": then(
            processes(api_server=99.0, engine_core=30.0), of_gpu(util_pct=40.0)
        ),
        "engine core at 99 % of a core": processes(api_server=20.0, engine_core=99.0),
        "clocks 15 % down under the power cap": power(0.85),
        "clocks 3 % down under the power cap": power(0.97),
        "a power-cap reason, clocks steady": power(1.0),
        "clocks 15 % down, no reason": power(0.85, reasons=0),
        "clocks 15 % down, power cap at 200 of 700 W": power(0.85, drawn_w=200.0),
        "clocks 15 % down, power cap and idle": power(0.85, reasons=5),
        "one of eight GPUs 14 % down under the cap": then(
            resolved(tensor_parallel_size=8),
            power(1.0),
            beside_idle_gpus(6, sm_clock_mhz=1980.0),
            lambda run: of_samples(
                gpu=(
                    *run.samples.gpu,
                    *(
                        replace(s, gpu=7, sm_clock_mhz=0.86 * 1980)
                        for s in run.samples.gpu
                        if s.gpu == 0
                    ),
                )
            )(run),
            of_run(layout=Layout(tp=8), n_gpus=8),
        ),
        "DRAM counter at 30 %": of_gpu(dram_bw_pct=30.0),
        "DRAM counter at 130 %": of_gpu(dram_bw_pct=130.0),
        "tensor pipes at 80 %": of_gpu(tensor_pct=80.0),
        "GPU utilization 30 %": of_gpu(util_pct=30.0),
        "KV full, requests wait, 30 preempted": then(FULL, preempted(30.0)),
        "requests wait, KV at 10 %": ROOM,
        "one request preempted, KV at 10 %": then(ROOM, preempted(1.0)),
        "60 % prefix cache hits": prefix_hits(60.0),
        "prefill in 40 % of the steps that take no longer": prefill_in_steps(0.4),
        "prefill in every step (chunked)": prefill_in_steps(1.0),
        "compiling in the only cell of a row": compiling_in("c64_0"),
        "host memory 98 % full": host_memory(98, 100),
        "host memory 98 % full, one kill for want of it": then(
            host_memory(98, 100), of_launches(lambda x: replace(x, oom_kills=1))
        ),
        "host memory 10 % full": host_memory(10, 100),
        "counters that fell in every cell": restarted,
        "server's TPOT counted twice": after(
            lambda v, old: (
                old + 2 * (v.value - old)
                if v.name.endswith("time_per_output_token_seconds_sum")
                else v.value
            )
        ),
        "2.5 tokens a step by drafts": drafted(2.5),
        "pipeline parallel over 2": of_run(layout=Layout(pp=2), n_gpus=2),
        "config of 60 layers, not 48": of_config(num_hidden_layers=60),
        "config of 96 layers, not 48, no server log": then(
            of_config(num_hidden_layers=96),
            of_launches(lambda x: replace(x, log=None)),
        ),
        "config says MXFP4": of_config(quantization_config={"quant_method": "mxfp4"}),
    },
}
