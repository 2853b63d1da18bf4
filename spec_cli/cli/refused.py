"""Flags of llama.cpp's tools that have no place here, and why."""

_WHY = {
    "spec-cli is no server": """
        --host --port --path --api-key --api-key-file --ssl-key-file --ssl-cert-file --timeout -to --threads-http
        --slots --no-slots --metrics --props --embedding --embeddings --rerank --reranking --slot-save-path
        --slot-prompt-similarity -sps --cache-reuse --webui --no-webui --api-prefix -a --alias --agent --no-agent -ag
        -no-ag --cache-idle-slots --no-cache-idle-slots --cache-list -cl --no-cache-prompt --cache-ram
        -cram --cors-credentials --no-cors-credentials --cors-headers --cors-methods --cors-origins
        --lora-init-without-apply --mcp-servers-config --mcp-servers-json --media-path --models-autoload
        --no-models-autoload --models-dir --models-max --models-preset --pooling --embd-normalize
        --reuse-port --sleep-idle-seconds --sse-ping-interval --tags --tools --tools-runtime
        --ui --no-ui --ui-config --ui-config-file --ui-mcp-proxy --no-ui-mcp-proxy --webui-config --webui-config-file
        --webui-mcp-proxy --no-webui-mcp-proxy --log-prompts-dir""",
    "the memory takes care of itself": """
        --no-cont-batching -nocb --kv-unified -kvu --no-kv-unified -no-kvu --kv-unified-per-slot
        --checkpoint-min-step -cms --ctx-checkpoints -ctxcp --swa-checkpoints --defrag-thold -dt""",
    "threads are placed by the system (taskset, nice)": """
        -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch
        --cpu-strict-batch --prio-batch --poll-batch --numa -Cd -Crd -Cbd -Crbd --cpu-mask-draft --cpu-range-draft
        --cpu-strict-draft --prio-draft --poll-draft --cpu-mask-batch-draft --cpu-range-batch-draft
        --cpu-strict-batch-draft --prio-batch-draft --poll-batch-draft --spec-draft-cpu-mask
        --spec-draft-cpu-mask-batch --spec-draft-cpu-range --spec-draft-cpu-range-batch --spec-draft-cpu-strict
        --spec-draft-cpu-strict-batch --spec-draft-prio --spec-draft-prio-batch --spec-draft-poll
        --spec-draft-poll-batch""",
    "it reads text only": """
        --mmproj -mm --mmproj-url -mmu --image --audio --mmproj-auto --mmproj-offload
        --no-mmproj-offload --mmproj-device -mmdev --image-max-tokens --image-min-tokens --mtmd-batch-max-tokens
        --video-ffmpeg-dir --video-fps --video-timestamp-interval""",
    "set -c and -ngl; without a GPU, memory is asked for": "-fit -fitt -fitc --fit --fit-target --fit-ctx",
    "spec-cli chat is the conversation, the model's template gives its form": """
        -i --interactive -if --interactive-first --in-prefix --in-suffix --in-prefix-bos""",
    "--context-shift keeps the system message": "--keep",
    "the answer is printed as the model gives it": """
        --reasoning-format --reasoning-budget --reasoning-budget-message --reasoning-preserve --no-reasoning-preserve
        --no-skip-chat-parsing --display-prompt""",
    "use -v": """
        --log-file --log-colors --log-prefix --log-timestamps --log-jsonl -lv --verbosity --log-verbosity
        --verbose-prompt --print-token-count -ptc""",
    "use -q": "--no-perf",
    "use -hf": """
        -mu --model-url --docker-repo -dr --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default
        --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default
        --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default""",
    "ngram-mod cannot be run yet: use --spec-type ngram-simple": """
        --spec-default --spec-ngram-mod-n-min""",
    "ngram-mod cannot be run yet: use --spec-ngram-simple-size-n": """
        --spec-ngram-mod-n-match""",
    "ngram-mod cannot be run yet: use --spec-draft-n-max": """
        --spec-ngram-mod-n-max""",
    "ngram-map-k and ngram-map-k4v cannot be run yet: use --spec-ngram-simple-size-n": """
        --spec-ngram-map-k-size-n --spec-ngram-map-k4v-size-n""",
    "ngram-map-k and ngram-map-k4v cannot be run yet: use --spec-ngram-simple-size-m": """
        --spec-ngram-map-k-size-m --spec-ngram-map-k4v-size-m""",
    "ngram-map-k and ngram-map-k4v cannot be run yet: --spec-type ngram-simple takes the newest repeat": """
        --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-min-hits""",
    "ngram-cache cannot be run yet: --spec-type ngram-simple looks in the text itself": """
        --lookup-cache-dynamic -lcd --lookup-cache-static -lcs""",
    "it has no effect in llama-server either": "--spec-draft-p-split --draft-p-split",
    "the first pass is the prompt's": "--warmup",
    "samplers run on the CPU": """
        -bs --backend-sampling --spec-draft-backend-sampling""",
    "it would print an acceptance that nobody measured": "--spec-synth-len --spec-synth-rates",
    "templates are always Jinja": "--no-jinja",
    "use --install-completion": "--completion-bash",
    "give the text to -sys": "-sysf --system-prompt-file",
    "not built": """
        --control-vector --control-vector-scaled --control-vector-layer-range --rpc --infill --spm-infill --lazy-mode
        -lzm --n-cpu-ffn -ncffn --grp-attn-n -gan --grp-attn-w -gaw --binary-file -bf --prompt-cache
        --prompt-cache-all --prompt-cache-ro""",
}
REFUSED = {flag: why for why, flags in _WHY.items() for flag in flags.split()}
