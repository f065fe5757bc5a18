"""Other words for known causes, known words for other causes, and logs without fault.

Every log was written and judged by hand before the doctor saw it.
"""
# ruff: noqa: E501, Q003  # log lines are left whole where a break would hide their words

import pytest

from stepscope.analysis.boot.diagnose import diagnose
from stepscope.parse.serverlog import parse_log
from stepscope.run.serverlog import BootVerdict, counted

_START = """\
(APIServer pid=9) INFO 06-02 09:00:00 [utils.py:299] vLLM API server version 0.24.1
(APIServer pid=9) INFO 06-02 09:00:00 [utils.py:233] non-default args: {ARGS}
(EngineCore pid=20) INFO 06-02 09:00:06 [core.py:100] Initializing a V1 LLM engine \
(v0.24.1) with config: model='m', tensor_parallel_size=1, max_seq_len=8192
"""
_LOADING = """\
(EngineCore pid=20) INFO 06-02 09:00:09 [gpu_model_runner.py:3001] Starting to load \
model m...
"""
_LOADED = """\
(EngineCore pid=20) INFO 06-02 09:00:30 [default_loader.py:300] Loading weights took \
18.00 seconds
(EngineCore pid=20) INFO 06-02 09:00:31 [gpu_model_runner.py:3050] Model loading took \
20.5 GiB memory and 20.1 seconds
"""
_KV = """\
(EngineCore pid=20) INFO 06-02 09:00:50 [gpu_worker.py:400] Available KV cache memory: \
40.0 GiB
(EngineCore pid=20) INFO 06-02 09:00:50 [kv_cache_utils.py:1200] GPU KV cache size: \
400,000 tokens
"""
_READY = """\
(APIServer pid=9) INFO 06-02 09:01:20 [launcher.py:40] Starting vLLM server on \
http://0.0.0.0:8000
(APIServer pid=9) INFO:     Application startup complete.
"""
_GONE = """\
(APIServer pid=9) Traceback (most recent call last):
(APIServer pid=9)   File "/x/vllm/v1/engine/core_client.py", line 5, in __init__
(APIServer pid=9) RuntimeError: Engine core initialization failed. See root cause \
above. Failed core proc(s): {}
"""


def vllm(*parts: str, args: str = "{'model': 'm'}") -> str:
    return _START.replace("{ARGS}", args) + "".join(parts)


def raised(last: str, *frames: str, at: str = "09:00:40") -> str:
    """A traceback of the engine's process, and what follows from it."""
    head = f"(EngineCore pid=20) ERROR 06-02 {at} [core.py:700] "
    lines = ["EngineCore failed to start.", "Traceback (most recent call last):"]
    lines += [f'  File "/x/{f.partition(".")[0]}.py", line 9, in {f.partition(".")[2]}'
              for f in frames]  # fmt: skip
    return "".join(f"{head}{line}\n" for line in (*lines, last)) + _GONE


def judged(text: str, exit_code: int | None = None) -> BootVerdict:
    return diagnose(parse_log(text.encode()), exit_code=exit_code)


HEALTHY = {
    "a prompt that quotes an out-of-memory error": vllm(
        _LOADING, _LOADED, _KV, _READY,
        "(APIServer pid=9) INFO 06-02 09:02:00 [logger.py:39] Received request cmpl-1:"
        " prompt: 'Why do I get torch.OutOfMemoryError: CUDA out of memory. Tried to"
        " allocate 2.00 GiB?', params: SamplingParams(n=1)\n",
        '(APIServer pid=9) INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 200'
        " OK\n",
    ),
    "an extension that is missing and not needed": vllm(
        "WARNING 06-02 09:00:01 [interface.py:10] Failed to import from vllm._C with"
        " ModuleNotFoundError: No module named 'vllm._C'\n",
        _LOADING, _LOADED, _KV, _READY,
    ),
    "a socket that has no IPv6": vllm(
        "[W602 09:00:08.1 socket.cpp:204] [c10d] The hostname of the client socket"
        " cannot be retrieved. err=-3\n"
        "[W602 09:00:08.2 socket.cpp:752] [c10d] The server socket cannot be"
        " initialized on [::]:29500 (errno: 97 - Address family not supported by"
        " protocol).\n",
        _LOADING, _LOADED, _KV, _READY,
    ),
    "a container that is called oom-killer": "".join(
        f"oom-killer-1  | {line}\n"
        for line in vllm(_LOADING, _LOADED, _KV, _READY).splitlines()
    ),
    "a start after one that ran out of memory": vllm(
        _LOADING,
        raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
               " GPU 0 has a total capacity of 79.10 GiB of which 1.00 GiB is free.",
               "gpu_model_runner.load_model"),
    ) + vllm(_LOADING, _LOADED, _KV, _READY),
    "a request that was refused for its length": vllm(
        _LOADING, _LOADED, _KV, _READY,
        "(APIServer pid=9) ERROR 06-02 09:03:00 [serving.py:200] ValueError: This"
        " model's maximum context length is 8192 tokens. However, your request has 9000"
        " input tokens.\n",
        '(APIServer pid=9) INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" 400'
        " Bad Request\n",
    ),
    "llama-server that can not restore a slot": (
        "build: 6000 (abc) with gcc for x86_64\n"
        "main: loading model\nsrv    load_model: loading model 'm.gguf'\n"
        "main: model loaded\n"
        "main: server is listening on http://127.0.0.1:8080 - starting the main loop\n"
        "srv  update_slots: all slots are idle\n"
        "srv  send_error: task id = 7, error: the request exceeds the available context"
        " size, try increasing it\n"
    ),
    "a debugger's line about a killed sidecar": vllm(
        _LOADING, _LOADED, _KV, _READY,
    ) + "[12.5] Memory cgroup out of memory: Killed process 77 (envoy)"
        " total-vm:1000kB, anon-rss:900kB, file-rss:0kB, shmem-rss:0kB\n",
    "an error about a repository that is a folder": vllm(
        "(APIServer pid=9) ERROR 06-02 09:00:02 [repo_utils.py:65] Error retrieving"
        " safetensors: Repo id must be in the form 'repo_name' or 'namespace/repo_name':"
        " '/models/m'. Use `repo_type` argument if needed., retrying 1 of 2\n",
        _LOADING, _LOADED, _KV, _READY,
    ),
    "a picture that did not fit while others are served": vllm(
        _LOADING, _LOADED, _KV, _READY,
        "(APIServer pid=9) ERROR 06-02 09:03:00 [serving.py:80] Error in preprocessing"
        " prompt inputs\n"
        "(APIServer pid=9) ERROR 06-02 09:03:00 [serving.py:80] Traceback (most recent"
        " call last):\n"
        '(APIServer pid=9) ERROR 06-02 09:03:00 [serving.py:80]   File "/x/a.py", line'
        " 3, in process\n"
        "(APIServer pid=9) ERROR 06-02 09:03:00 [serving.py:80]"
        " torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0"
        " has a total capacity of 79.10 GiB of which 1.00 GiB is free.\n"
        '(APIServer pid=9) INFO:     1.2.3.4:5 - "POST /v1/chat/completions HTTP/1.1"'
        " 500 Internal Server Error\n"
        '(APIServer pid=9) INFO:     1.2.3.4:6 - "POST /v1/chat/completions HTTP/1.1"'
        " 200 OK\n",
    ),
    "a GPU without a number format": vllm(
        _LOADING,
        "(EngineCore pid=20) WARNING 06-02 09:00:12 [marlin.py:60] Your GPU does not"
        " have native support for FP4 computation but FP4 quantization is being used."
        " Weight-only FP4 compression will be used leveraging the Marlin kernel.\n",
        _LOADED, _KV, _READY,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HEALTHY)
def test_a_server_that_came_up_is_not_accused(name: str) -> None:
    verdict = judged(HEALTHY[name])
    assert (verdict.outcome, verdict.cause) == ("ready", None), verdict


#: name -> (log, exit code, causes that are right, words that no fix may hold)
FAILED: dict[str, tuple[str, int | None, set[str], tuple[str, ...]]] = {
    "no GPU in the container": (
        vllm(raised("RuntimeError: No CUDA GPUs are available", "cuda._lazy_init")),
        1, {"unknown"}, ("utilization", "tensor-parallel"),
    ),
    "driver too old": (
        vllm(raised("RuntimeError: The NVIDIA driver on your system is too old (found"
                    " version 12020).", "cuda._lazy_init")),
        1, {"unknown", "missing-toolchain"}, ("utilization", "attention-backend"),
    ),
    "disk full at the compile cache": (
        vllm(_LOADING, _LOADED, raised(
            "OSError: [Errno 28] No space left on device:"
            " '/home/u/.cache/vllm/torch_compile_cache/3f/artifact'", "backends.save")),
        1, {"unknown"}, ("shm", "utilization", "ipc"),
    ),
    "disk full while the model is fetched": (
        vllm(raised("RuntimeError: Data processing error: IO Error: No space left on"
                    " device (os error 28)", "file_download.xet_get")),
        1, {"unknown", "model-not-found"}, ("shm", "ipc"),
    ),
    "shared memory full": (
        vllm(raised("OSError: [Errno 28] No space left on device: '/dev/shm/psm_1a'",
                    "shm_broadcast.__init__")),
        1, {"shm-exhausted"}, ("utilization",),
    ),
    "the host has no memory for an allocation": (
        vllm(_LOADING, raised(
            "RuntimeError: [enforce fail at alloc_cpu.cpp:118] err == 0."
            " DefaultCPUAllocator: can't allocate memory: you tried to allocate"
            " 68719476736 bytes. Error code 12 (Cannot allocate memory)",
            "gpu_model_runner.load_model", "weight_utils.empty")),
        1, {"unknown"}, ("utilization", "tensor-parallel"),
    ),
    "Python's own MemoryError": (
        vllm(_LOADING, raised("MemoryError", "gpu_model_runner.load_model")),
        1, {"unknown"}, ("utilization", "tensor-parallel"),
    ),
    "model type that the library does not know": (
        vllm(raised("ValueError: The checkpoint you are trying to load has model type"
                    " `foo4` but Transformers does not recognize this architecture."
                    " This could be because of an issue with the checkpoint, or because"
                    " your version of Transformers is out of date.", "config.get")),
        1, {"unknown", "bad-argument"}, ("attention-backend", "dtype"),
    ),
    "model class that the engine does not have": (
        vllm(raised("ValueError: Model architectures ['FooForCausalLM'] are not"
                    " supported for now. Supported architectures: dict_keys(['A'])",
                    "registry.resolve")),
        1, {"unknown", "bad-argument"}, ("attention-backend", "dtype"),
    ),
    "hub out of reach": (
        vllm(raised("requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnec"
                    "tionPool(host='huggingface.co', port=443): Max retries exceeded"
                    " with url: /m/resolve/main/config.json (Caused by NewConnection"
                    "Error('[Errno 111] Connection refused'))\"))", "hub.cached_file")),
        1, {"unknown", "model-not-found"}, ("port", "shm", "NCCL"),
    ),
    "gated repository": (
        vllm(raised("OSError: You are trying to access a gated repo. Make sure to have"
                    " access to it at https://huggingface.co/m. 401 Client Error.",
                    "hub.cached_file")),
        1, {"model-not-found"}, ("utilization",),
    ),
    "HIP runs out in capture": (
        vllm(_LOADING, _LOADED, _KV, raised(
            "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU"
            " 0 has a total capacity of 191.98 GiB of which 1.20 GiB is free.",
            "gpu_worker.compile_or_warm_up_model", "gpu_model_runner.capture_model")),
        1, {"gpu-oom-capture"}, ("tensor-parallel",),
    ),
    "XPU runs out while it loads": (
        vllm(_LOADING, raised(
            "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 1.00 GiB. GPU"
            " 0 has a total capacity of 48.00 GiB.", "gpu_model_runner.load_model")),
        1, {"gpu-oom-load"}, ("utilization",),
    ),
    "no room although the share is at its limit": (
        vllm(_LOADING, _LOADED,
             "(EngineCore pid=20) INFO 06-02 09:00:50 [gpu_worker.py:400] Available KV"
             " cache memory: -3.0 GiB\n",
             raised("ValueError: No available memory for the cache blocks. Try"
                    " increasing `gpu_memory_utilization` when initializing the engine.",
                    "kv_cache_utils.check"),
             args="{'model': 'm', 'gpu_memory_utilization': 0.97}"),
        1, {"no-kv-memory"}, ("raise --gpu-memory-utilization",),
    ),
    "an estimate of no token at all": (
        vllm(_LOADING, _LOADED, raised(
            "ValueError: To serve at least one request with the models's max seq len"
            " (131072), (16.00 GiB KV cache is needed, which is larger than the"
            " available KV cache memory (0.00 GiB). Based on the available memory, the"
            " estimated maximum model length is 0.", "kv_cache_utils.check")),
        1, {"kv-smaller-than-context"}, ("lower --max-model-len to 0",),
    ),
    "a crash in native code": (
        vllm(_LOADING, _LOADED, "Segmentation fault (core dumped)\n"),
        139, {"unknown"}, ("memory limit", "utilization"),
    ),
    "an illegal instruction": (
        vllm(_LOADING), -4, {"unknown"}, ("memory limit", "utilization"),
    ),
    "killed after everything was loaded": (
        vllm(_LOADING, _LOADED, _KV), 137, {"unknown"}, ("utilization",),
    ),
    "the wrapper alone": (
        vllm(_GONE), 1, {"unknown"}, ("memory limit", "utilization"),
    ),
    "a rank that ran out minutes before the watchdog": (
        vllm(_LOADING,
             "(Worker_TP3 pid=33) ERROR 06-02 09:00:25 [multiproc_executor.py:7]"
             " WorkerProc failed to start.\n"
             "(Worker_TP3 pid=33) ERROR 06-02 09:00:25 [multiproc_executor.py:7]"
             " Traceback (most recent call last):\n"
             "(Worker_TP3 pid=33) ERROR 06-02 09:00:25 [multiproc_executor.py:7]   File"
             ' "/x/gpu_model_runner.py", line 5, in load_model\n'
             "(Worker_TP3 pid=33) ERROR 06-02 09:00:25 [multiproc_executor.py:7]"
             " torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.00 GiB."
             " GPU 3 has a total capacity of 79.10 GiB of which 0.50 GiB is free.\n"
             "(Worker_TP0 pid=30) [rank0]:[E602 09:10:25.1 ProcessGroupNCCL.cpp:632]"
             " [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1,"
             " OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600010 milliseconds before"
             " timing out.\n", _GONE),
        1, {"gpu-oom-load"}, ("NCCL",),
    ),
    "SGLang beside a tenant": (
        "[2026-06-02 09:00:00] server_args=ServerArgs(model_path='m',"
        " mem_fraction_static=0.85, tp_size=1)\n"
        "[2026-06-02 09:00:10] Load weight begin. avail mem=16.41 GB\n"
        "[2026-06-02 09:00:30] Load weight end. type=Qwen3ForCausalLM,"
        " dtype=torch.bfloat16, avail mem=1.31 GB, mem usage=15.10 GB.\n"
        "[2026-06-02 09:00:31] Scheduler hit an exception: Traceback (most recent call"
        " last):\n"
        '  File "/x/pool_configurator.py", line 56, in profile\n'
        "RuntimeError: Not enough memory. Please try to increase"
        " --mem-fraction-static.\n",
        1, {"no-kv-memory"}, ("raise --mem-fraction-static to 0.9",
                              "raise --mem-fraction-static to 1"),
    ),
    "SGLang's scheduler stands still": (
        "[2026-06-02 09:00:00] server_args=ServerArgs(model_path='m', tp_size=2)\n"
        "[2026-06-02 09:05:00] The server is fired up and ready to roll!\n"
        "[2026-06-02 09:30:00 TP0] Scheduler watchdog timeout"
        " (self.watchdog_timeout=300, self.soft=False)\n"
        "[2026-06-02 09:30:05 TP0] Received sigquit from a child process. It usually"
        " means the child failed.\n",
        -9, {"hang", "unknown"}, ("utilization", "mem-fraction"),
    ),
    "llama-server can not bind": (
        "main: loading model\n"
        "main: couldn't bind HTTP server socket, hostname: 0.0.0.0, port: 8080\n"
        "main: exiting due to HTTP server error\n",
        1, {"port-in-use"}, ("gpu-layers",),
    ),
    "llama-server does not know the model": (
        "main: loading model\n"
        "llama_model_load: error loading model: error loading model architecture:"
        " unknown model architecture: 'foo'\n"
        "llama_model_load_from_file_impl: failed to load model\n"
        "main: exiting due to model loading error\n",
        1, {"unknown"}, ("attention-backend", "gpu-layers"),
    ),
    "llama-server is given a page of HTML": (
        "main: loading model\n"
        "gguf_init_from_file_impl: invalid magic characters: '<!DO', expected 'GGUF'\n"
        "llama_model_load: error loading model: llama_model_loader: failed to load model"
        " from m.gguf\n"
        "main: exiting due to model loading error\n",
        1, {"unknown", "model-not-found", "bad-argument"}, ("gpu-layers", "ctx-size"),
    ),
    "llama-server has no memory on the host": (
        "main: loading model\n"
        "ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size"
        " 437944320000\n"
        "alloc_tensor_range: failed to allocate CPU buffer of size 437944320000\n"
        "llama_model_load: error loading model: unable to allocate CPU buffer\n"
        "main: exiting due to model loading error\n",
        1, {"unknown"}, ("gpu-layers",),
    ),
    "NCCL finds no memory on the GPU": (
        vllm("(Worker_TP0 pid=30) h:30:30 [0] NCCL WARN Cuda failure 2 'out of"
             " memory'\n",
             raised("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL"
                    ".cpp:77, unhandled cuda error (run with NCCL_DEBUG=INFO for"
                    " details)", "parallel_state.init")),
        1, {"unknown", "gpu-oom-load"}, ("shm",),
    ),
    "cuBLAS finds no memory": (
        vllm(_LOADING, _LOADED, raised(
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"
            " `cublasCreate(handle)`", "gpu_worker.determine_available_memory",
            "gpu_model_runner.profile_run")),
        1, {"unknown", "gpu-oom-profile"}, ("raise --gpu", "memory limit"),
    ),
    "the driver's wording while graphs are captured": (
        vllm(_LOADING, _LOADED, _KV, raised(
            "torch.AcceleratorError: CUDA error: out of memory",
            "gpu_worker.compile_or_warm_up_model", "gpu_model_runner.capture_model")),
        1, {"gpu-oom-capture"}, ("raise --gpu", "memory limit"),
    ),
    "no kernel for this GPU": (
        vllm(_LOADING, _LOADED, raised(
            "torch.AcceleratorError: CUDA error: no kernel image is available for"
            " execution on the device", "gpu_model_runner.profile_run")),
        1, {"unsupported-arch"}, ("utilization",),
    ),
    "a broken GPU": (
        vllm(_LOADING, raised(
            "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
            "gpu_model_runner.load_model")),
        1, {"unknown"}, ("utilization", "tensor-parallel"),
    ),
    "an engine socket that is taken": (
        vllm(raised("zmq.error.ZMQError: Address already in use"
                    " (addr='tcp://127.0.0.1:5557')", "core_client.make_zmq_socket")),
        1, {"port-in-use"}, ("set --port",),
    ),
    "a library built for another torch": (
        vllm("(APIServer pid=9) Traceback (most recent call last):\n"
             '(APIServer pid=9)   File "/x/vllm/platforms/cuda.py", line 8, in x\n'
             "(APIServer pid=9) ImportError: /x/vllm/_C.abi3.so: undefined symbol:"
             " _ZN3c104cuda9SetDeviceEa\n"),
        1, {"unknown", "missing-package"}, ("pip install to vllm", "LD_LIBRARY"),
    ),
    "a checkpoint that is cut": (
        vllm(_LOADING, raised(
            "safetensors_rust.SafetensorError: Error while deserializing header:"
            " MetadataIncompleteBuffer", "weight_utils.safetensors_weights_iterator")),
        1, {"unknown"}, ("utilization",),
    ),
    "a folder without a configuration": (
        vllm(raised("OSError: /models/m does not appear to have a file named"
                    " config.json.", "config.get_config")),
        1, {"model-not-found"}, ("utilization",),
    ),
    "no compiler": (
        vllm(_LOADING, _LOADED, raised(
            "RuntimeError: Could not find nvcc and default"
            " cuda_home='/usr/local/cuda' doesn't exist", "jit.build")),
        1, {"missing-toolchain"}, ("utilization",),
    ),
    "no headers": (
        vllm(_LOADING, _LOADED,
             "/var/a/main.c:5:10: fatal error: Python.h: No such file or"
             " directory\ncompilation terminated.\n",
             raised("torch._inductor.exc.InductorError: CalledProcessError: Command"
                    " '['/usr/bin/gcc', 'main.c']' returned non-zero exit status 1.",
                    "build.compile")),
        1, {"missing-toolchain"}, ("utilization",),
    ),
    "a type that the GPU lacks": (
        vllm(raised("ValueError: Bfloat16 is only supported on GPUs with compute"
                    " capability of at least 8.0. Your Tesla T4 GPU has compute"
                    " capability 7.5. You can use float16 instead by explicitly setting"
                    " the `dtype` flag in CLI, for example: --dtype=half.",
                    "cuda.check_if_supports_dtype")),
        1, {"unsupported-arch"}, ("utilization", "attention-backend"),
    ),
    "a length beyond the model's own": (
        vllm(raised("ValueError: User-specified max_model_len (200000) is greater than"
                    " the derived max_model_len (max_position_embeddings=131072 or"
                    " model_max_length=None in model's config.json).", "config.verify")),
        1, {"bad-argument"}, ("utilization",),
    ),
    "an unknown quantization": (
        vllm(raised("ValueError: Unknown quantization method: foo. Must be one of"
                    " ['awq', 'fp8'].", "config.verify_quantization")),
        1, {"bad-argument", "unknown"}, ("utilization", "dtype"),
    ),
    "a limit that is no number": (
        "usage: vllm serve [model_tag] [options]\n"
        "vllm serve: error: argument --max-model-len: invalid human_readable_int_or_auto"
        " value: 'many'\n",
        2, {"bad-argument"}, ("utilization",),
    ),
    "llama-server is given an unknown flag": (
        "error: invalid argument: --gpu-memory-utilization\n",
        1, {"bad-argument"}, ("raise", "lower"),
    ),
    "a kill that the group's counters deny": (
        vllm(_LOADING, _LOADED) + "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n",
        137, {"unknown"}, ("utilization",),
    ),
    "a kill while loading that the group's counters deny": (
        vllm(_LOADING) + "low 0\nhigh 0\nmax 12\noom 0\noom_kill 0\n",
        137, {"unknown"}, ("memory limit",),
    ),
    "a kernel kill while serving": (
        vllm(_LOADING, _LOADED, _KV, _READY)
        + "[99.1] Memory cgroup out of memory: Killed process 20 (VLLM::EngineCor)"
          " total-vm:900000000kB, anon-rss:90000000kB, file-rss:10kB,"
          " shmem-rss:5000kB\n",
        137, {"host-oom-kill"}, ("utilization",),
    ),
    "another rank went first": (
        vllm(_LOADING,
             "(Worker_TP1 pid=31) ERROR 06-02 09:00:25 [multiproc_executor.py:7]"
             " torch.distributed.DistBackendError: NCCL error: remote process exited or"
             " there was a network error, ncclRemoteError: A call failed possibly due to"
             " a network error or a remote process exiting prematurely.\n"
             "(Worker_TP0 pid=30) ERROR 06-02 09:00:25 [multiproc_executor.py:7]"
             " torch.AcceleratorError: CUDA error: an illegal memory access was"
             " encountered\n", _GONE),
        1, {"unknown"}, ("shm", "NCCL_DEBUG"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_a_failure_gets_a_right_cause_or_none_and_no_harmful_fix(name: str) -> None:
    text, exit_code, causes, never = FAILED[name]
    verdict = judged(text, exit_code)
    assert verdict.outcome == "failed", verdict
    assert verdict.cause in causes, verdict
    for fix in verdict.fixes:
        told = f"{fix.direction} {fix.flag} to {fix.value}"
        assert not any(word in told for word in never), told


UNFINISHED = {
    "stopped by its supervisor while loading": (
        vllm(_LOADING, "(APIServer pid=9) INFO 06-02 09:00:20 [launcher.py:90] Received"
                       " SIGTERM, shutting down\n"),
        143,
    ),
    "still loading": (vllm(_LOADING), None),
    "ended from outside without a word": (vllm(_LOADING), 143),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFINISHED)
def test_a_start_that_was_cut_short_is_no_failure(name: str) -> None:
    text, exit_code = UNFINISHED[name]
    verdict = judged(text, exit_code)
    assert (verdict.outcome, verdict.cause) == ("unfinished", None), verdict


def test_what_the_session_counted_decides_between_a_kill_for_memory_and_another() -> (
    None
):
    log = parse_log(vllm(_LOADING).encode())
    for n_kills, cause in (
        (None, "host-oom-kill"),
        (2, "host-oom-kill"),
        (0, "unknown"),
    ):
        verdict = diagnose(counted(log, n_kills), exit_code=-9)
        assert (verdict.outcome, verdict.cause) == ("failed", cause)
    told = diagnose(counted(log, 2), exit_code=-9)
    assert "counted 2 such kills" in told.why
    assert told.fixes[0].flag == "memory limit of the container"
    denied = diagnose(counted(log, 0), exit_code=-9)
    assert "counted no out-of-memory kill" in denied.why


def test_a_count_beside_a_server_that_fell_with_words_changes_nothing() -> None:
    text = vllm(_LOADING, raised(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"
        " has a total capacity of 79.10 GiB of which 1.00 GiB is free.",
        "gpu_model_runner.load_model"))  # fmt: skip
    log = parse_log(text.encode())
    assert diagnose(counted(log, 1), exit_code=1) == diagnose(log, exit_code=1)
