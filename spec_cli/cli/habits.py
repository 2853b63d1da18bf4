"""What people type from habit of other tools, and what it means here: data."""

from __future__ import annotations

_MET = {
    "templates are always Jinja": "--jinja",
    "no pass is spent on warming up": "--no-warmup",
    "the prompt is never printed": "--no-display-prompt",
    "the model's chat template is used; spec-cli chat goes on talking": "-cnv --conversation",
    "the speed is always shown, -q leaves it out": "--perf",
    "its log is shown with -v only": "--log-disable",
    "its log comes as it is, with -v": "--no-log-prefix --no-log-timestamps --no-log-jsonl",
    "rows run together and one begins as another ends": "-cb --cont-batching",
    "a beginning that texts share is read once": "--cache-prompt",
    "it reads text only": "--no-mmproj --no-mmproj-auto",
    "the answer is printed as the model gives it": "--skip-chat-parsing --reasoning-format=none",
    "samplers run on the CPU": "--no-spec-draft-backend-sampling",
    "a prompt has one answer": "-st --single-turn",
    "words go in and out as they are": "--simple-io",
    "a full context ends the answer": "--no-context-shift",
    "memory is asked for, nothing is set by itself on a GPU": "-fit=off --fit=off",
}
MET = {flag: why for why, flags in _MET.items() for flag in flags.split()}
"""Flags of llama.cpp whose wish is met already, `--flag=value` where that is so for one value only, and why.

A command may have such a flag itself (chat has --single-turn): then it is not looked up here.
"""

MEANT = {
    "--mmap": ("--load-mode", "mmap"),
    "--no-mmap": ("--load-mode", "none"),
    "--mlock": ("--load-mode", "mlock"),
    "--direct-io": ("--load-mode", "dio"),
    "-dio": ("--load-mode", "dio"),
    "--usage": ("--help",),
}
"""Flags of llama.cpp that are written otherwise here."""

_NAMES = {
    "--model": "--model-path --model-file --gguf --checkpoint",
    "--model-draft": "--draft-model --speculative-model --assistant-model --draft-model-path",
    "--spec-draft-n-max": "--num-draft-tokens --num-assistant-tokens --speculative-num-draft-tokens --gamma",
    "--spec-ngram-simple-size-n": "--ngram-prompt-lookup-max --ngram-prompt-lookup-min --prompt-lookup-max",
    "--spec-ngram-simple-size-m": "--prompt-lookup-num-tokens",
    "--spec-type": "--speculation --speculative --speculative-algorithm",
    "--ctx-size": "--n-ctx --num-ctx --max-model-len --context-size --context-length --max-seq-len",
    "--gpu-layers": "--num-gpu --n-gpu",
    "--threads": "--n-threads --num-threads --num-thread",
    "--system-prompt": "--system --system-message",
    "--predict": "--num-predict --max-length --n-tokens --max-completion-tokens",
    "--repeat-penalty": "--repetition-penalty",
    "--stop": "--stop-sequence --stop-sequences --stop-word --stop-words",
    "--json-schema": "--guided-json --response-format --schema",
    "--grammar": "--guided-grammar",
    "--flash-attn": "--flash-attention",
    "--reasoning": "--think --thinking --enable-thinking",
    "--output": "--out --outfile",
    "--parallel": "--concurrency --max-num-seqs --workers",
    "--hf-token": "--token",
    "--file": "--prompt-file --input --input-file",
}
NAMES = {word: flag for flag, words in _NAMES.items() for word in words.split()}
"""Flags of vLLM, transformers, mlx-lm, Ollama and others, and what is like them here: a hint, no alias."""

_NO_STORE = "models are GGUF files: spec-cli generate -m FILE.gguf, or -hf USER/REPO, which downloads"
COMMANDS = {
    **dict.fromkeys(("run", "complete", "prompt"), "spec-cli generate -m MODEL -p TEXT, or spec-cli chat -m MODEL"),
    **dict.fromkeys(("pull", "get", "download"), "spec-cli generate -hf USER/REPO downloads what is not cached"),
    **dict.fromkeys(("list", "ls"), "spec-cli models list"),
    "show": "spec-cli models show NAME",
    **dict.fromkeys(("serve", "server", "start", "stop"), "spec-cli is no server: generate, chat, batch run a model"),
    "ps": "spec-cli is no server: no model stays loaded",
    **dict.fromkeys(("rm", "cp", "create", "push"), _NO_STORE),
    "help": "spec-cli --help",
    "version": "spec-cli --version",
}
"""Commands of Ollama, LM Studio and others, and what to type instead."""
