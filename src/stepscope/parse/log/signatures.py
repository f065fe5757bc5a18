"""What failing looks like: one row per kind of text, the first match wins.

The rows name texts, not causes: the same text can have several causes, and the same
cause several texts. Words such as "alloc" or "expandable_segments" are no evidence of
exhausted memory; they stand in the advice of many messages.
"""

import re

_I = re.IGNORECASE

#: (signature, pattern). Named groups: ``n_*`` are numbers, others are words.
SIGNATURES: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern, flags))
    for name, pattern, flags in (
        (
            "sampler-oom",
            r"out of memory occurred when warming up (?P<what>sampler|pooler)"
            r"(?: with (?P<n_requests>\d+) dummy)?",
            0,
        ),
        (
            "no-kv-memory",
            r"No available memory for the cache blocks|"
            r"Not enough memory\. Please try to increase --mem-fraction-static",
            0,
        ),
        (
            "kv-smaller-than-context",
            r"To serve at least one request with the models?'?s? max seq len "
            r"\((?P<n_tokens>\d+)\)(?:.*?\((?P<n_needed_gib>(?:\d*\.)?\d+) "
            r"Gi?B KV cache is "
            r"needed)?(?:.*?available KV cache memory "
            r"\((?P<n_available_gib>-?(?:\d*\.)?\d+)"
            r" Gi?B\))?(?:.*?estimated maximum model length is (?P<n_estimated>\d+))?",
            0,
        ),
        (
            "kv-smaller-than-context",
            r"model's max seq len \((?P<n_tokens>\d+)\) is larger than the maximum "
            r"number of tokens that can be stored in KV cache \((?P<n_estimated>\d+)\)",
            0,
        ),
        (
            "free-memory-below-request",
            r"Free memory on device(?: (?P<device>\S+))? "
            r"\((?P<n_free_gib>(?:\d*\.)?\d+)/(?P<n_total_gib>(?:\d*\.)?\d+) "
            r"GiB\) on startup is "
            r"less than (?:desired GPU memory utilization "
            r"\((?P<n_utilization>(?:\d*\.)?\d+), "
            r"(?P<n_requested_gib>(?:\d*\.)?\d+) GiB\)|"
            r".*?\((?P<n_utilization2>(?:\d*\.)?\d+), "
            r"(?P<n_budget_gib>(?:\d*\.)?\d+) GiB\)|.*)",
            0,
        ),
        (
            "memory-race",
            r"Error in memory profiling\. Initial free memory "
            r"(?P<n_initial>(?:\d*\.)?\d+)"
            r"(?: GiB)?, current free memory (?P<n_current>(?:\d*\.)?\d+)",
            0,
        ),
        (
            "unbalanced-memory",
            r"The memory capacity is unbalanced(?:.*?pre_model_load_memory="
            r"(?P<n_least_gib>(?:\d*\.)?\d+), local_gpu_memory="
            r"(?P<n_local_gib>(?:\d*\.)?\d+))?",
            0,
        ),
        (
            "mamba-blocks",
            r"max_num_seqs \((?P<n_seqs>\d+)\) exceeds available Mamba cache blocks "
            r"\((?P<n_blocks>\d+)\)",
            0,
        ),
        (
            "allocator-clash",
            r"[Ee]xpandable.segments (?:are|is) (?:not compatible|incompatible)|"
            r"expandable_segments.{0,40}(?:not compatible|not supported|incompatible)",
            0,
        ),
        (
            "host-alloc",
            r"cudaHostAlloc|cudaHostRegister|cudaErrorHostMemory|"
            r"unable to allocate (?P<buffer>CPU|CUDA_Host|SYCL_Host|ROCm_Host|"
            r"Vulkan_Host) buffer|failed to allocate (?P<buffer2>CPU|CUDA_Host|"
            r"SYCL_Host|ROCm_Host|Vulkan_Host) buffer|"
            r"DefaultCPUAllocator: (?:can't allocate|not enough) memory|"
            r"\[Errno 12\] Cannot allocate memory|std::bad_alloc|"
            r"numpy\S*MemoryError: Unable to allocate|"
            r"Not enough host memory available",
            0,
        ),
        (
            "kv-alloc",
            r"failed to allocate (?:buffer for )?kv cache|"
            r"failed to initialize the context: failed to allocate (?!compute)",
            _I,
        ),
        (
            "compute-alloc",
            r"failed to allocate compute (?:\w+ )?buffers?",
            0,
        ),
        (
            "host-oom",
            r"ray\.exceptions\.OutOfMemoryError|node running low on memory",
            0,
        ),
        (
            "gpu-oom",
            r"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|"
            r"Triton Error \[(?:CUDA|HIP)\]: out of memory|"
            r"(?:torch\.)?(?:cuda\.)?OutOfMemoryError(?!: out of resource)|"
            r"cudaErrorMemoryAllocation|"
            r"cudaMalloc failed: out of memory|CUDA_ERROR_OUT_OF_MEMORY|"
            r"hipErrorOutOfMemory|CUBLAS_STATUS_ALLOC_FAILED|NV_ERR_NO_MEMORY|"
            r"unable to allocate (?:CUDA|ROCm|Vulkan|SYCL)\d+ buffer|"
            r"failed to allocate (?:CUDA|ROCm|Vulkan|SYCL)\d+ buffer|"
            r"not enough GPU memory|(?:Prefill|Decode) out of memory",
            0,
        ),
        (
            "shm-exhausted",
            r"[Ee]rror while creating shared memory segment|"
            r"No space left on device.{0,80}/dev/shm|/dev/shm.{0,80}No space left|"
            r"Call to (?:posix_fallocate|shm_open|ftruncate) failed|"
            r"No space left on device: '/psm_|</torch_[^>]*>: No space left|"
            r"unable to (?:open|allocate|write) .{0,40}shared memory|"
            r"unable to mmap \d+ bytes from file </torch_|"
            r"Unexpected bus error encountered in worker|"
            r"insufficient shared memory \(shm\)|\bBus error\b",
            0,
        ),
        (
            "port-in-use",
            r"couldn't bind (?:HTTP server )?(?:socket|to)"
            r"(?:.*?\bport:? (?P<n_port2>\d+))?|"
            r"(?:\[Errno 98\] )?error while attempting to bind on address"
            r"(?: \('[^']*', (?P<n_port3>\d+))?|"
            r"[Pp]ort (?P<n_port>\d+) is (?:already in use|not available)|"
            r"\[Errno 98\]|EADDRINUSE|[Aa]ddress already in use",
            0,
        ),
        (
            "ready-timeout",
            r"Timed out waiting for (?:new )?engine core processes to start"
            r"(?:.*?Waited (?P<n_waited_s>(?:\d*\.)?\d+) ?s)?",
            0,
        ),
        (
            "toolchain",
            r"nvcc fatal|nvcc: (?:not found|command not found)|"
            r"Unknown option.{0,4}--?compress-mode|"
            r"Could not find nvcc|CUDA_HOME (?:environment variable )?is not set|"
            r"No such file or directory: '?\S*(?:nvcc|gcc|g\+\+|ninja|hipcc|ptxas)\b|"
            r"Ninja is required to load C\+\+ extensions|Ninja build failed|"
            r"Failed to find (?:a )?(?P<compiler>C) compiler|"
            r"fatal error: (?:Python\.h|cuda\S*\.h|\w+\.h): No such file|"
            r"Unsupported gpu architecture '(?P<arch>\w+)'|"
            r"Value '(?P<arch2>sm_\w+)' is not defined for option 'gpu-name'|"
            r"ptxas fatal|"
            r"No supported CUDA architectures found for major versions "
            r"\[(?P<majors>[\d, ]+)\]",
            0,
        ),
        (
            "unsupported-arch",
            r"(?P<image>no kernel image is available|device kernel image is invalid)|"
            r"type (?P<dtype>fp8e\w+) not supported in this architecture|"
            r"only supports sm ?(?P<n_sm3>\d+) and (?:above|later|newer)|"
            r"FlashInfer requires GPUs with sm(?P<n_sm>\d+) or higher|"
            r"requires? (?:a )?(?:GPUs?|devices?) with compute capability|"
            r"only supported on (?:GPUs|devices) with compute capability|"
            r"[Cc]ompute capability (?P<capability>(?:\d*\.)?\d+) (?:is "
            r")?(?:not supported|"
            r"is too|<)|not supported (?:on|for) (?:this|the current) "
            r"(?:GPU|device|architecture|hardware)|"
            r"is not supported (?:on|by) (?:sm|SM)_?(?P<n_sm2>\d+)|"
            r"Minimum capability: (?P<n_minimum>\d+)\. Current capability: "
            r"(?P<n_capability>\d+)|CPU does not support (?:AVX|AMX)",
            0,
        ),
        (
            "missing-package",
            r"(?:ModuleNotFoundError|ImportError): .*No module named "
            r"'?(?P<package>[\w.]+)'?|"
            r"ModuleNotFoundError|"
            r"PackageNotFoundError: (?:No package metadata was found for )?"
            r"(?P<package2>[\w.-]+)|"
            r"ImportError: (?:Please install|.*(?:is not installed|to be installed|"
            r"pip install)) ?(?P<package3>[\w.-]*(?:\[[\w,.-]+\])?)|"
            r"ImportError: (?P<library>lib[\w.+-]+): cannot open shared object|"
            r"\w+ is not installed[.,] [Pp]lease",
            0,
        ),
        (
            "model-not-found",
            r"RepositoryNotFoundError|GatedRepoError|EntryNotFoundError|"
            r"HFValidationError|Repo id must be in the form|RevisionNotFoundError|"
            r"is not a local folder and is not a valid model identifier|"
            r"does not appear to have a file named (?P<file>\S+)|"
            r"Invalid repository ID or local directory|"
            r"Cannot find any model weights with|"
            r"Can't load (?:the )?config(?:uration)? (?:for|of) '(?P<model>[^']+)'|"
            r"Can't load (?:the )?(?P<part>tokenizer|(?:image |feature )?"
            r"(?:processor|extractor)) for '(?P<model2>[^']+)'|"
            r"No such file or directory: '[^']*config\.json'|"
            r"You are trying to access a gated repo|"
            r"(?:failed to open GGUF file|clip_model_loader: failed to open|"
            r"error loading model: .*(?:No such file|failed to open))|"
            r"couldn't connect to 'https://huggingface\.co'",
            0,
        ),
        (
            "bad-argument",
            r"error: unrecognized arguments: ?(?P<arguments>.*)|"
            r"error: argument (?P<argument>[\w/, -]+):|"
            r"error: the following arguments are required: (?P<required>.*)|"
            r"error: invalid argument: (?P<invalid>\S+)|"
            r"error while handling argument \"(?P<argument2>[\w-]+)\"|"
            r"error: unknown argument: (?P<unknown>\S+)|"
            r"No such option: (?P<option>\S+)|"
            r"validation errors? for \w+|"
            r"contains custom code which must be executed|"
            r"(?:pass the argument|consider setting|[Pp]lease set|set the option) "
            r"[`'\"]?trust.remote.code|"
            r"(?P<cache>kv-cache) is not supported with|"
            r"(?P<cache2>kv_cache_dtype) not supported|"
            r"(?P<cache3>kv_data_type) \S+ is not supported|"
            r"User-specified max_model_len \((?P<n_asked>\d+)\) is greater than the "
            r"derived max_model_len \((?:[\w.]+=)?(?P<n_derived>\d+)|"
            r"max_num_batched_tokens \((?P<n_batched>\d+)\) (?:is smaller than|must "
            r"be greater than or equal to) max_(?:model_len|num_seqs) "
            r"\((?P<n_limit>\d+)\)|"
            r"Total number of attention heads \((?P<n_heads>\d+)\) must be divisible "
            r"by tensor parallel size \((?P<n_tp>\d+)\)|"
            r"[Ww]orld size \((?P<n_world>\d+)\) is larger than the number of "
            r"available GPUs \((?P<n_gpus>\d+)\)|"
            r"(?P<ordinal>invalid device ordinal)|"
            r"Quantization method specified in the model config \((?P<stored>\w+)\) "
            r"does not match|chat template string .*appears path-like|"
            r"invalid (?P<parser>tool call|reasoning) parser: (?P<given>\S+)|"
            r"Required number of devices: (?P<n_world2>\d+)\. "
            r"Total number of devices: (?P<n_gpus2>\d+)|"
            r"piecewise CUDA graphs \(cudagraph_mode=(?P<mode>\w+)\) unavailable|"
            r"CUDAGraphMode\.(?P<mode2>\w+) is not supported with",
            0,
        ),
        # What a validation refused, in words of which none is known.
        ("bad-argument", r"^  (?:Value error|Assertion failed), ", 0),
        (
            "nccl-system-error",
            r"ncclSystemError|unhandled system error|"
            r"\b(?P<call>Call to (?:connect|bind|listen|accept|poll|recv|recvmsg|"
            r"send|sendmsg|getaddrinfo|ibv_\w+)\b[^:]*?) failed *: "
            r"(?P<reason>.{3,80})",
            0,
        ),
        (
            "collective-timeout",
            r"[Ww]atchdog (?:caught collective operation )?timeout|"
            r"RPC call to \w+ timed out|execute_model timed out|"
            r"Timed out after \d+ ?(?:s|ms) waiting for operation to complete|"
            r"Timed out waiting \d+ ?ms for \w+ operation to complete",
            0,
        ),
        (
            "illegal-access",
            r"illegal memory access|device-side assert triggered|"
            r"misaligned address|unspecified launch failure|"
            r"CUDA_ERROR_ILLEGAL_ADDRESS",
            0,
        ),
        (
            "killed",
            r"(?:[Ee]xit ?[Cc]ode|exitcode|exited with code|terminated with|died|"
            r"returned)[: =]*\(?"
            r"(?P<n_exit_code>-?\d+)\)?|"
            r"(?:died with|terminated by|killed by) (?P<signal>SIG\w+)|"
            r": line \d+: +\d+ (?P<bare2>Killed|Segmentation fault|Aborted)\b|"
            r"(?:received|by) signal (?P<n_signal>\d+)\b|"
            r"Failed core proc\(s\): \{[^}]*: (?P<n_exit_code2>-\d+)|"
            r"^(?P<bare>Killed|Segmentation fault|Aborted)\b.*$|"
            r"(?P<segfault>SIGSEGV|SIGBUS|Segmentation fault)",
            0,
        ),
    )
)

#: Reports that something else has failed. They are never a root.
WRAPPER = re.compile(
    r"EngineCore failed to start|WorkerProc failed to start|"
    r"WorkerProc initialization failed|WorkerProc hit an exception|"
    r"\w*WorkerProc failed|RayWorkerProc rank=\S+ died|"
    r"terminating server process|SIGQUIT received|[Rr]oot cause above|"
    r"Engine core initialization failed|Engine core proc(?:ess)? \S+ died|"
    r"Worker proc \S+ died unexpectedly|EngineCore encountered a(?:n)? "
    r"(?:fatal error|issue)|EngineDeadError|Engine (?:process failed|loop is not)|"
    r"EngineCore (?:loop )?died|AsyncLLM output_handler failed|"
    r"AsyncEngineDeadError|MQEngineDeadError|Frontend process failed|"
    r"Received sigquit from a child process|Scheduler hit an exception|"
    r"scheduler(?:\(s\))? died|Rank \d+ scheduler (?:is dead|died)|"
    r"Exception in worker|Task finished with error|"
    r"exiting due to model loading error|failed to load model|"
    r"Failed core proc|Worker failed with error|Executor failed|"
    r"See (?:root cause|stack trace) above|Engine is dead|"
    r"Unhandled exception in|TokenizerManager hit an exception|"
    r"Initialization failed\. (?:warmup|Warmup) error|"
    r"Failed: Cuda error .* terminate called"
)

#: What a process says when another one has gone away.
COLLATERAL = re.compile(
    r"Connection (?:reset by peer|closed by)|BrokenPipeError|\bEOFError\b|"
    r"recvValue failed|TCPStore|Broken pipe|cancelled|CancelledError|"
    r"Parent process exited|ConnectionRefusedError|ConnectionResetError|"
    r"ncclRemoteError|NCCL communicator was aborted|watchdog thread terminated|"
    r"destroy_process_group|leaked (?:semaphore|shared_memory)|KeyboardInterrupt|"
    r"SystemExit|terminate called"
)

#: Kernel log and control-group lines.
KERNEL_KILL = re.compile(
    r"(?:[Mm]emory cgroup out of memory|[Oo]ut of memory): [Kk]illed? process "
    r"(?P<n_pid>\d+)?,? ?\(?(?P<name>[^),]*)\)?"
)
KERNEL_RSS = re.compile(r"(anon|file|shmem)-rss: ?(\d+) ?kB")
KERNEL_OTHER = re.compile(
    r"oom-kill:constraint=(?P<constraint>\w+)|invoked oom-killer|"
    r"Detected \d+ oom[_-]kill event|[Rr]eason[:=]\s*OOMKilled|"
    r"\"OOMKilled\": ?true|killed by the OOM killer"
)
MEMORY_EVENTS = re.compile(r"^(?:memory\.events:? ?)?oom_kill:? (?P<n_kills>\d+)$")

OOM_NUMBERS = {
    "asked_gib": re.compile(
        r"Tried to allocate ((?:\d*\.)?\d+) (KiB|MiB|GiB|TiB|bytes)"
    ),
    "total_gib": re.compile(
        r"total capacity of ((?:\d*\.)?\d+) (MiB|GiB|TiB)|"
        r"; ((?:\d*\.)?\d+) (MiB|GiB) total capacity"
    ),
    "free_gib": re.compile(
        r"of which ((?:\d*\.)?\d+) (bytes|KiB|MiB|GiB)\s+(?:is|are) free|"
        r"; ((?:\d*\.)?\d+) (MiB|GiB) free"
    ),
    "in_use_gib": re.compile(
        r"this process has ((?:\d*\.)?\d+) (MiB|GiB) memory in use"
    ),
    "allocated_gib": re.compile(
        r"memory ((?:\d*\.)?\d+) (MiB|GiB) is allocated by PyTorch"
    ),
    "graph_pools_gib": re.compile(
        r"with ((?:\d*\.)?\d+) (MiB|GiB) allocated in private"
    ),
    "reserved_gib": re.compile(r"and ((?:\d*\.)?\d+) (MiB|GiB) is reserved by PyTorch"),
    "buffer_gib": re.compile(
        r"(?:buffer of size|allocating) ((?:\d*\.)?\d+) ?(MiB|GiB|bytes)?"
    ),
}
OTHER_PROCESS = re.compile(r"Process (\d+) has ((?:\d*\.)?\d+) (MiB|GiB) memory in use")
OOM_GPU = re.compile(r"GPU (\d+) ha[sd]? ")
SCALE_GIB = {
    "bytes": 1 / (1 << 30),
    "KiB": 1 / (1 << 20),
    "MiB": 1 / 1024,
    "GiB": 1.0,
    "TiB": 1024.0,
}
