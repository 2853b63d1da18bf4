"""Flags of llama.cpp's tools that have no place here, and why."""

_WHY = {
    "spec-cli is no server": """
        --host --port --path --api-key --api-key-file --ssl-key-file --ssl-cert-file --timeout -to --threads-http
        --slots --no-slots --metrics --props --embedding --embeddings --rerank --reranking --slot-save-path
        --slot-prompt-similarity -sps --cache-reuse --webui --no-webui --api-prefix -a --alias""",
    "threads are placed by the system (taskset, nice)": """
        -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch
        --cpu-strict-batch --prio-batch --poll-batch --numa""",
    "use --load-mode": "--mmap --no-mmap --mlock -dio --direct-io",
    "it reads text only": "--mmproj -mm --mmproj-url -mmu --image --audio --no-mmproj",
    "set -c and -ngl; without a GPU, memory is asked for": "-fit -fitt -fitc --fit --fit-target --fit-ctx",
    "it belongs to a conversation": """
        -cnv --conversation -i --interactive -if --interactive-first -mli --multiline-input -st --single-turn
        --in-prefix --in-suffix --in-prefix-bos --keep --context-shift --no-context-shift --prompt-cache""",
    "use -v": "--log-file --log-colors --log-prefix --log-timestamps --log-jsonl -lv --verbosity",
    "the first pass is the prompt's": "--warmup --no-warmup",
    "samplers run on the CPU": "-bs --backend-sampling",
    "it would print an acceptance that nobody measured": "--spec-synth-len --spec-synth-rates",
    "templates are always Jinja": "--jinja --no-jinja",
    "use -hf": "-mu --model-url",
    "not built": "--control-vector --control-vector-scaled --control-vector-layer-range --rpc --infill --spec-default",
}
REFUSED = {flag: why for why, flags in _WHY.items() for flag in flags.split()}
