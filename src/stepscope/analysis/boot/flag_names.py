"""The long flags of each engine's server, to tell a slip from an unknown flag.

Source: the engines' own lists of arguments, vLLM 0.8 to 0.26, SGLang 0.4 to 0.5 and
llama-server of 2026. Flags that a release took away are among them: what a user meant
is one question, what the release offers another.
"""

#: Names without their dashes, by engine, with blanks between them.
LONG_FLAGS = {
    "vllm": """
        additional-config aggregate-engine-logging all2all-backend
        allow-credentials allow-deprecated-quantization allowed-headers
        allowed-local-media-path allowed-media-domains allowed-methods
        allowed-origins api-key api-server-count async-scheduling
        attention-backend attention-config aux-output-config block-size
        calculate-kv-scales chat-template chat-template-content-format
        code-revision collect-detailed-traces compilation-config config-format
        convert cp-kv-cache-interleave-size cpu-distributed-timeout-seconds
        cpu-offload-gb cpu-offload-params cudagraph-capture-sizes
        cudagraph-metrics custom-histogram-buckets data-parallel-address
        data-parallel-backend data-parallel-external-lb data-parallel-hybrid-lb
        data-parallel-multi-port-external-lb data-parallel-rank
        data-parallel-rpc-port data-parallel-size data-parallel-size-local
        data-parallel-start-rank dbo-decode-token-threshold
        dbo-prefill-token-threshold dcp-comm-backend
        dcp-kv-cache-interleave-size dcp-q-replicate
        decode-context-parallel-size default-mm-loras device-ids
        device-memory-utilization diffusion-config disable-cascade-attn
        disable-chunked-mm-input disable-custom-all-reduce disable-fastapi-docs
        disable-hybrid-kv-cache-manager disable-log-requests disable-log-stats
        disable-mm-preprocessor-cache disable-nccl-for-dp-synchronization
        disable-sliding-window disable-uvicorn-access-log
        distributed-executor-backend distributed-timeout-seconds download-dir
        dp-sync-interval dtype ec-manager-config ec-transfer-config
        elastic-ep-max-dp-size enable-auto-tool-choice
        enable-batch-sharded-sampling enable-chunked-prefill
        enable-cumem-allocator enable-dbo enable-elastic-ep
        enable-ep-weight-filter enable-eplb enable-expert-parallel
        enable-fault-tolerance enable-flashinfer-autotune
        enable-force-include-usage enable-hc-sp enable-layerwise-nvtx-tracing
        enable-log-deltas enable-log-outputs enable-log-requests
        enable-logging-iteration-details enable-lora
        enable-mamba-cache-stochastic-rounding
        enable-mamba-shared-prefix-checkpoint enable-mfu-metrics
        enable-mixed-moe-lora-format enable-mm-embeds enable-moe-shared-loras
        enable-nccl-comm-suspend enable-prefix-caching enable-prompt-embeds
        enable-prompt-tokens-details enable-reasoning enable-request-id-headers
        enable-return-routed-experts enable-server-load-tracking
        enable-shm-tensor-arena enable-sleep-mode enable-ssl-refresh
        enable-tokenizer-info-endpoint enable-tower-connector-lora
        enable-trace-replay enforce-eager engram-config eplb-config
        expert-placement-strategy fail-on-environ-validation
        fault-tolerance-config fully-sharded-loras gdn-prefill-backend
        generation-config gpu-memory-utilization guided-decoding-backend
        headless hf-config-path hf-overrides hf-token host ignore-patterns
        interleave-mm-strings io-processor-plugin ir-op-priority
        jit-monitor-mode jit-monitor-verbose kda-decode-backend
        kda-prefill-backend kernel-config kv-cache-dtype
        kv-cache-dtype-skip-layers kv-cache-memory-bytes kv-cache-metrics
        kv-cache-metrics-sample kv-events-config kv-offloading-backend
        kv-offloading-size kv-sharing-fast-prefill kv-transfer-config
        language-model-only limit-mm-per-prompt linear-backend load-format
        log-config-file log-level logging-config logits-processors logprobs-mode
        long-prefill-token-threshold long-prefill-token-threshold-adaptive
        lora-dtype lora-modules lora-target-modules mamba-backend
        mamba-block-size mamba-cache-dtype mamba-cache-mode
        mamba-cache-philox-rounds mamba-ssm-cache-dtype mamba-ssu-algorithm
        master-addr master-port max-cpu-loras max-cudagraph-capture-size
        max-log-len max-logprobs max-lora-cls-labels max-lora-rank max-loras
        max-model-len max-num-active-seqs max-num-batched-tokens
        max-num-queued-reqs max-num-queued-tokens max-num-scheduled-tokens
        max-num-seqs max-parallel-loading-workers max-seq-len-to-capture
        media-io-kwargs middleware mm-device-do-normalize
        mm-encoder-attn-backend mm-encoder-attn-dtype mm-encoder-fp8-scale-path
        mm-encoder-fp8-scale-save-margin mm-encoder-fp8-scale-save-path
        mm-encoder-only mm-encoder-tp-mode mm-hasher-algorithm
        mm-ipc-gpu-memory-gb mm-processor-cache-gb mm-processor-cache-type
        mm-processor-device mm-processor-kwargs mm-shm-cache-max-object-size-mb
        mm-tensor-ipc model model-class-overrides model-impl
        model-loader-extra-config moe-backend nnodes node-rank
        num-gpu-blocks-override num-lookahead-slots num-scheduler-steps
        num-speculative-tokens numa-bind numa-bind-cpus numa-bind-nodes
        offload-backend offload-group-size offload-num-in-group offload-params
        offload-prefetch-step optimization-level otlp-traces-endpoint
        override-generation-config per-request-spec-decode-metrics
        performance-mode pipeline-parallel-size pooler-config port
        preemption-mode prefill-context-parallel-size prefill-schedule-interval
        prefix-cache-retention-interval prefix-caching-hash-algo
        prefix-match-unit profiler-config pt-load-map-location quantization
        quantization-config ray-workers-use-nsight reasoning-config
        reasoning-parser reasoning-parser-plugin renderer-num-workers
        replayssm-buffer-len response-role return-sampling-mask
        return-tokens-as-token-ids revision root-path rope-scaling rope-theta
        runner safetensors-load-strategy safetensors-prefetch-block-size
        safetensors-prefetch-num-threads scheduler-cls
        scheduler-reserve-full-isl scheduling-policy seed served-model-name
        show-hidden-metrics-for-version shutdown-timeout skip-mm-profiling
        skip-tokenizer-init sleep-mode-offload-cudagraph
        sleep-preserve-parameter-names sparse-indexer-topk-backend spec-method
        spec-model spec-tokens specialize-active-lora speculative-config
        speculative-model ssl-ca-certs ssl-certfile ssl-keyfile stream-interval
        structured-outputs-config swa-bounded-replay swap-space task
        tensor-parallel-size tokenizer tokenizer-mode tokenizer-revision
        tool-call-parser tool-parser-plugin tool-server trust-remote-code
        trust-request-chat-template ubatch-size uds use-fp64-gumbel
        use-replayssm use-tqdm-on-load use-v2-block-manager uvicorn-log-level
        video-pruning-method video-pruning-rate watermark watermark-config
        weight-transfer-config worker-cls worker-extension-cls
    """,
    "sglang": """
        allow-auto-truncate api-key attention-backend base-gpu-id chat-template
        chunked-prefill-size completion-template
        constrained-json-whitespace-pattern context-length cpu-offload-gb
        crash-dump-folder cuda-graph-backend-decode cuda-graph-backend-prefill
        cuda-graph-bs cuda-graph-max-bs cuda-graph-max-bs-decode
        data-parallel-size decode-attention-backend decode-log-interval
        deepep-config deepep-mode delete-ckpt-after-loading device
        disable-chunked-prefix-cache disable-cuda-graph
        disable-cuda-graph-padding disable-custom-all-reduce
        disable-fast-image-processor disable-hybrid-swa-memory
        disable-outlines-disk-cache disable-overlap-schedule disable-radix-cache
        disable-shared-experts-fusion disaggregation-bootstrap-port
        disaggregation-decode-tp disaggregation-ib-device disaggregation-mode
        disaggregation-transfer-backend dist-init-addr dist-timeout download-dir
        dp-size dtype enable-cache-report enable-cudagraph-gc
        enable-custom-logit-processor enable-deterministic-inference
        enable-dp-attention enable-dp-lm-head enable-eplb
        enable-expert-distribution-metrics enable-flashinfer-allreduce-fusion
        enable-hierarchical-cache enable-layerwise-nvtx-marker enable-lmcache
        enable-lora enable-memory-saver enable-metrics
        enable-metrics-for-all-schedulers enable-mixed-chunk enable-mscclpp
        enable-multimodal enable-nan-detection enable-nccl-nvls enable-p2p-check
        enable-piecewise-cuda-graph enable-priority-scheduling
        enable-profile-cuda-graph enable-request-time-stats-logging
        enable-return-hidden-states enable-single-batch-overlap enable-symm-mem
        enable-torch-compile enable-two-batch-overlap ep-dispatch-algorithm
        ep-num-redundant-experts ep-size eplb-algorithm
        eplb-rebalance-num-iterations expert-distribution-recorder-mode
        expert-parallel-size file-storage-path flashinfer-mla-disable-ragged
        flashinfer-mxfp4-moe-precision gpu-id-step grammar-backend
        hicache-io-backend hicache-mem-layout hicache-ratio hicache-size
        hicache-storage-backend hicache-write-policy host hybrid-kvcache-ratio
        init-expert-location is-embedding json-model-override-args
        kv-cache-dtype kv-events-config load-balance-method load-format
        log-level log-level-http log-requests log-requests-level lora-backend
        lora-paths lora-target-modules mamba-ssm-dtype max-loaded-loras
        max-lora-rank max-loras-per-batch max-mamba-cache-size
        max-micro-batch-size max-prefill-tokens max-queued-requests
        max-running-requests max-total-tokens mem-fraction-static
        mm-attention-backend model-impl model-loader-extra-config model-path
        moe-a2a-backend moe-dense-tp-size moe-runner-backend nccl-port nnodes
        node-rank nsa-decode-backend nsa-prefill-backend
        num-continuous-decode-steps num-reserved-decode-tokens numa-node
        offload-group-size page-size piecewise-cuda-graph-max-tokens
        pipeline-parallel-size port pp-max-micro-batch-size pp-size
        preferred-sampling-params prefill-attention-backend quantization
        quantization-param-path random-seed reasoning-parser revision
        sampling-backend sampling-defaults schedule-conservativeness
        schedule-policy scheduler-recv-interval served-model-name show-time-cost
        skip-server-warmup skip-tokenizer-init sleep-on-idle
        speculative-accept-threshold-acc speculative-accept-threshold-single
        speculative-algorithm speculative-attention-mode
        speculative-draft-model-path speculative-eagle-topk
        speculative-num-draft-tokens speculative-num-steps speculative-token-map
        stream-interval stream-output swa-full-tokens-ratio
        tbo-token-distribution-threshold tensor-parallel-size tokenizer-mode
        tokenizer-path tokenizer-worker-num tool-call-parser tool-server
        torch-compile-max-bs torchao-config tp-size
        triton-attention-num-kv-splits triton-attention-reduce-in-fp32
        trust-remote-code warmups watchdog-timeout weight-version
    """,
    "llamacpp": """
        alias api-key api-key-file batch-size cache-prompt cache-ram cache-reuse
        cache-type-k cache-type-v chat-template chat-template-file
        chat-template-kwargs check-tensors cont-batching context-shift
        control-vector cpu-mask cpu-moe cpu-range cpu-strict ctx-checkpoints
        ctx-size ctx-size-draft device device-draft draft-max draft-min
        draft-p-min embedding embeddings escape fit fit-ctx fit-target
        flash-attn gpu-layers grammar grammar-file hf-file hf-repo hf-token host
        jinja json-schema keep kv-unified list-devices log-colors log-disable
        log-file log-prefix log-timestamps log-verbosity lora lora-scaled
        main-gpu metrics min-p mlock mmap mmproj mmproj-offload mmproj-url model
        model-draft model-url models-dir models-max n-cpu-moe n-gpu-layers
        n-gpu-layers-draft n-predict no-cache-prompt no-cont-batching
        no-context-shift no-escape no-jinja no-kv-offload no-kv-unified no-mmap
        no-mmproj no-op-offload no-perf no-slots no-warmup no-webui numa offline
        op-offload override-kv override-tensor parallel path perf poll pooling
        port prio props reasoning-budget reasoning-format repack repeat-penalty
        reranking rope-freq-base rope-freq-scale rope-scale rope-scaling
        samplers seed slot-prompt-similarity slot-save-path slots spec-type
        split-mode spm-infill ssl-cert-file ssl-key-file swa-full temp
        tensor-split threads threads-batch threads-draft threads-http timeout
        top-k top-p ubatch-size verbose verbosity warmup webui yarn-ext-factor
        yarn-orig-ctx
    """,
}
