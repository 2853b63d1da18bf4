"""Every option, declared once: flags, environment name, default, range, help.

This table makes the command line, the keys of models.toml, and the checks on all of them (`values`).
Names, aliases, environment names and defaults are llama-server's (common/arg.cpp).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

LOAD_MODES = {
    "auto": "AUTO", "none": "NONE", "mmap": "MMAP", "mlock": "MLOCK", "mmap+mlock": "MMAP_MLOCK", "dio": "DIRECT_IO",
}  # fmt: skip
SPLIT_MODES = {"none": "NONE", "layer": "LAYER", "row": "ROW", "tensor": "TENSOR"}
ROPE_SCALING = {"model": -1, "none": 0, "linear": 1, "yarn": 2}  # enum llama_rope_scaling_type
CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
MOST_CTX = 1 << 24  # no GGUF knows more positions; what fits is asked of the machine
MOST_THREADS = 512  # GGML_MAX_N_THREADS: more are a segmentation fault
MOST_GUESSES = 1024
MOST_LOGPROBS = 1000
MOST_ROWS = 255  # LLAMA_MAX_SEQ, but one
AUTOMATIC_ROWS = 4  # llama-server's
RANDOM_SEED = 0xFFFFFFFF
MOST_FLOAT = 1e6  # further out a float32 logit overflows
INT32 = (1 << 31) - 1


@dataclass(frozen=True)
class Flag:
    """One option: its spellings, where else it can be set, and what it may be."""

    names: tuple[str, ...]
    help: str
    panel: str
    metavar: str = ""
    env: str = ""
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    parse: Callable[[str], Any] | None = None
    shown: str = ""  # the default, where the Python value does not say it
    command_line_only: bool = False
    commands: tuple[str, ...] = ()  # the only commands that have it; none named: all
    row: tuple[str, ...] | None = None  # a row of batch may set it: further names there
    shapes: bool = False  # it shapes answers, see `shapes_answers`
    off: tuple[str, ...] = ()  # spellings that turn a switch off
    each: Callable[[str], Any] | None = None  # of a list: reads one of its texts, ValueError if it can't be

    @property
    def name(self) -> str:
        """The first long name, the canonical one."""
        return next(name for name in self.names if name.startswith("--"))

    @property
    def keys(self) -> list[str]:
        """The keys in models.toml, the canonical one first: the long names."""
        return [] if self.command_line_only else [n[2:] for n in self.names if n.startswith("--")]

    @property
    def shapes_answers(self) -> bool:
        """Whether it may change what an answer says or counts, rather than how long it takes."""
        return self.shapes or self.row is not None or self.panel in (SAMPLING, SPECULATION)

    @property
    def row_keys(self) -> list[str]:
        """The fields of a row of batch: the long names with underscores, and the `row` names."""
        if self.row is None:
            return []
        return [n[2:].replace("-", "_") for n in self.names if n.startswith("--")] + list(self.row)


def option(default: Any, *names: str, panel: str, help: str, **more: Any) -> Any:
    """A field of `Settings` that is a flag."""
    return field(default=default, metadata={"flag": Flag(names, help, panel, **more)})


def read_layers(text: str) -> int:
    """`auto`, `all` or a number of layers."""
    return {"auto": -1, "all": -2}[text] if text in ("auto", "all") else int(text)


def read_list(text: str) -> tuple[str, ...]:
    """Texts between commas."""
    words = tuple(word.strip() for word in text.split(","))
    if not all(words):
        raise ValueError
    return words


def read_shares(text: str) -> tuple[str, ...]:
    """Numbers between commas or slashes."""
    words = read_list(text.replace("/", ","))
    if len(words) > 16 or not all(float(word) >= 0 for word in words):
        raise ValueError
    return words


def read_kv_override(text: str) -> tuple[str, int | float | bool | str]:
    """`KEY=TYPE:VALUE` with type int, float, bool or str (common/common.cpp, string_parse_kv_override)."""
    key, equals, typed = text.partition("=")
    kind, colon, value = typed.partition(":")
    if not (key and equals and colon) or len(key.encode()) > 127 or len(value.encode()) > 127:
        raise ValueError
    if kind == "bool":
        return key, {"true": True, "false": False}[value]
    return key, {"int": int, "float": float, "str": str}[kind](value)


def read_scaled(text: str) -> tuple[str, float]:
    """`FILE:SCALE`."""
    file, colon, scale = text.rpartition(":")
    if not (file and colon):
        raise ValueError
    if not math.isfinite(float(scale)):
        raise ValueError
    return file, float(scale)


def read_parallel(text: str) -> int:
    """`auto` (in llama.cpp -1) or a number of rows."""
    n = -1 if text == "auto" else int(text)
    if n == 0:
        raise ValueError
    return n


def read_flash_attn(text: str) -> int:
    """llama.cpp's words for on, off and auto."""
    words = {
        "on": 1,
        "enabled": 1,
        "true": 1,
        "1": 1,
        "off": 0,
        "disabled": 0,
        "false": 0,
        "0": 0,
        "auto": -1,
        "-1": -1,
    }
    return words[text]


# common/sampling.cpp: the samplers by name, in the default order; their letters; other spellings
SAMPLERS = {
    "penalties": "e", "dry": "d", "top_n_sigma": "s", "top_k": "k", "typ_p": "y", "top_p": "p", "min_p": "m",
    "xtc": "x", "temperature": "t", "adaptive_p": "a",
}  # fmt: skip
DEFAULT_SAMPLERS = tuple(name for name in SAMPLERS if name != "adaptive_p")
_OTHER_SPELLINGS = {"typical": "typ_p", "typical_p": "typ_p", "typ": "typ_p", "nucleus": "top_p", "temp": "temperature"}


def read_samplers(text: str) -> tuple[str, ...]:
    """Names separated by `;` (llama.cpp's) or commas, in any of llama.cpp's spellings; or letters."""
    known = {name.replace("_", ""): name for name in SAMPLERS}
    known |= {name.replace("_", ""): meant for name, meant in _OTHER_SPELLINGS.items()}
    words = [word.strip().lower().replace("-", "").replace("_", "") for word in text.replace(",", ";").split(";")]
    if len(words) == 1 and words[0] not in known:
        return read_sampler_letters(words[0])
    return tuple(known[word] for word in words if word)


def read_sampler_letters(text: str) -> tuple[str, ...]:
    """A letter for each sampler."""
    letters = {letter: name for name, letter in SAMPLERS.items()}
    return tuple(letters[letter] for letter in text)


def read_bias(text: str) -> tuple[int, float]:
    """`ID+BIAS` or `ID-BIAS`; the bias may be inf."""
    found = re.fullmatch(r"(\d{1,9})([+-](?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|inf))", text.strip())
    if not found:
        raise ValueError
    return int(found[1]), float(found[2])


# other spellings of speculative types
TYPE_ALIASES = {
    "draft": "draft-simple", "simple": "draft-simple", "draft_model": "draft-simple", "ngram": "ngram-simple",
    "eagle3": "draft-eagle3", "mtp": "draft-mtp", "dflash": "draft-dflash", "dspark": "draft-dspark", "off": "none",
}  # fmt: skip


def read_types(text: str) -> tuple[str, ...]:
    """A comma list in any case, by canonical names; repeated flags arrive joined by commas."""
    words = [word.strip().lower() for word in text.split(",")]
    return tuple(TYPE_ALIASES.get(word, word) for word in words)


MODEL, CONTEXT, PROMPT, BATCH = "Model", "Context and speed", "Prompt", "Rows"
SAMPLING, SPECULATION, OUTPUT, CONVERSATION = "Sampling", "Speculation", "Output", "Conversation"
GENERATE_ONLY, BATCH_ONLY, CHAT_ONLY = ("generate",), ("batch",), ("chat",)
NOT_CHAT, NOT_BATCH = ("generate", "batch"), ("generate", "chat")


@dataclass(frozen=True)
class Settings:
    """All options of one run, checked. Defaults are llama.cpp's unless the help says otherwise."""

    # fmt: off
    model: Path | None = option(
        None, "-m", "--model", panel=MODEL, shapes=True, metavar="GGUF|NAME", env="LLAMA_ARG_MODEL",
        shown="the demo model, if installed",
        help="The target: a GGUF file, or a name from models.toml.",
    )
    model_draft: Path | None = option(
        None, "-md", "--model-draft", "--spec-draft-model", panel=MODEL, shapes=True, metavar="GGUF",
        env="LLAMA_ARG_SPEC_DRAFT_MODEL",
        help="A GGUF that guesses: a small model of the same vocabulary, an MTP or an EAGLE-3 head. Alone it "
        "means the --spec-type that it is made for (llama.cpp ignores a small model then).",
    )
    hf_repo: str | None = option(
        None, "-hf", "-hfr", "--hf-repo", panel=MODEL, metavar="USER/REPO[:QUANT]", env="LLAMA_ARG_HF_REPO",
        help="Download the target from Hugging Face, if it is not cached: of its files the one of this quantisation, "
        "else Q4_K_M, Q8_0 or the first.",
    )
    hf_file: str | None = option(
        None, "-hff", "--hf-file", panel=MODEL, metavar="FILE", env="LLAMA_ARG_HF_FILE",
        help="This file of the -hf repository.",
    )
    hf_repo_draft: str | None = option(
        None, "-hfd", "-hfrd", "--hf-repo-draft", "--spec-draft-hf", panel=MODEL, metavar="USER/REPO[:QUANT]",
        env="LLAMA_ARG_SPEC_DRAFT_HF_REPO",
        help="The same for the draft model; -md is then the name of a file there.",
    )
    hf_token: str | None = option(
        None, "-hft", "--hf-token", panel=MODEL, metavar="TOKEN", env="HF_TOKEN", command_line_only=True,
        help="Token for private repositories.",
    )
    offline: bool = option(
        False, "--offline", panel=MODEL, env="LLAMA_ARG_OFFLINE",
        help="Use what is cached; the network is not touched.",
    )
    gpu_layers: int = option(
        -1, "-ngl", "--gpu-layers", "--n-gpu-layers", panel=MODEL, metavar="N|auto|all",
        env="LLAMA_ARG_N_GPU_LAYERS", parse=read_layers, low=-2, high=INT32, shown="auto",
        help="Layers of the target that go to the GPU; auto is all. GPU memory is not checked beforehand.",
    )
    gpu_layers_draft: int = option(
        -1, "-ngld", "--gpu-layers-draft", "--n-gpu-layers-draft", "--spec-draft-ngl", panel=MODEL,
        metavar="N|auto|all", env="LLAMA_ARG_N_GPU_LAYERS_DRAFT", parse=read_layers, low=-2, high=INT32, shown="auto",
        help="The same for the draft model.",
    )
    repack: bool | None = option(
        None, "--repack", panel=MODEL, env="LLAMA_ARG_REPACK", off=("-nr", "--no-repack"),
        shown="on, but off where llama.cpp was built with AMX, which can crash",
        help="Lay weights out anew for faster kernels; --no-repack keeps them as they are.",
    )
    load_mode: str = option(
        "auto", "-lm", "--load-mode", panel=MODEL, metavar="MODE", env="LLAMA_ARG_LOAD_MODE",
        choices=tuple(LOAD_MODES),
        help="How files come into memory: " + " ".join(LOAD_MODES) + ".",
    )
    device: tuple[str, ...] = option(
        (), "-dev", "--device", panel=MODEL, metavar="NAME,...", env="LLAMA_ARG_DEVICE", parse=read_list,
        shown="all GPUs",
        help="Devices to use, or none.",
    )
    device_draft: tuple[str, ...] = option(
        (), "-devd", "--device-draft", "--spec-draft-device", panel=MODEL, metavar="NAME,...", parse=read_list,
        shown="as -dev",
        help="The same for the draft model.",
    )
    split_mode: str = option(
        "layer", "-sm", "--split-mode", panel=MODEL, metavar="MODE", env="LLAMA_ARG_SPLIT_MODE",
        choices=tuple(SPLIT_MODES),
        help="How a model is split over several GPUs: " + " ".join(SPLIT_MODES) + ".",
    )
    tensor_split: tuple[str, ...] = option(
        (), "-ts", "--tensor-split", panel=MODEL, metavar="X,...", env="LLAMA_ARG_TENSOR_SPLIT", parse=read_shares,
        shown="",
        help="Shares of the GPUs.",
    )
    main_gpu: int = option(
        0, "-mg", "--main-gpu", panel=MODEL, metavar="N", env="LLAMA_ARG_MAIN_GPU", low=0, high=255,
        help="The GPU of --split-mode none, and of what is not split.",
    )
    override_tensor: tuple[str, ...] = option(
        (), "-ot", "--override-tensor", panel=MODEL, metavar="PATTERN=BUFFER", env="LLAMA_ARG_OVERRIDE_TENSOR",
        shown="",
        help="Where tensors whose name matches lie; may be repeated, or a comma list.",
    )
    override_tensor_draft: tuple[str, ...] = option(
        (), "-otd", "--override-tensor-draft", "--spec-draft-override-tensor", panel=MODEL, metavar="PATTERN=BUFFER",
        shown="",
        help="The same for the draft model.",
    )
    cpu_moe: bool = option(
        False, "-cmoe", "--cpu-moe", panel=MODEL, env="LLAMA_ARG_CPU_MOE",
        help="Keep the weights of experts in main memory.",
    )
    n_cpu_moe: int = option(
        0, "-ncmoe", "--n-cpu-moe", panel=MODEL, metavar="N", env="LLAMA_ARG_N_CPU_MOE", low=0, high=INT32,
        help="Keep those of the first N layers there.",
    )
    cpu_moe_draft: bool = option(
        False, "-cmoed", "--cpu-moe-draft", "--spec-draft-cpu-moe", panel=MODEL, env="LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
        help="--cpu-moe for the draft model.",
    )
    n_cpu_moe_draft: int = option(
        0, "-ncmoed", "--n-cpu-moe-draft", "--spec-draft-n-cpu-moe",
        "--spec-draft-ncmoe", panel=MODEL, metavar="N",
        env="LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE", low=0, high=INT32,
        help="--n-cpu-moe for the draft model.",
    )
    override_kv: tuple[str, ...] = option(
        (), "--override-kv", panel=MODEL, metavar="KEY=TYPE:VALUE", each=read_kv_override, shapes=True, shown="",
        help="Metadata of the files in other words, of type int, float, bool or str; may be repeated.",
    )
    lora: tuple[str, ...] = option(
        (), "--lora", panel=MODEL, metavar="FILE", shapes=True, shown="",
        help="A LoRA adapter for the target; may be repeated.",
    )
    lora_scaled: tuple[str, ...] = option(
        (), "--lora-scaled", panel=MODEL, metavar="FILE:SCALE", each=read_scaled, shapes=True, shown="",
        help="The same with a scale.",
    )
    check_tensors: bool = option(
        False, "--check-tensors", panel=MODEL,
        help="Look for invalid values in the weights.",
    )
    no_host: bool = option(
        False, "--no-host", panel=MODEL, env="LLAMA_ARG_NO_HOST",
        help="Do without the host's buffers for transfers.",
    )
    config: Path | None = option(
        None, "--config", panel=MODEL, metavar="FILE", env="SPEC_CLI_CONFIG", command_line_only=True,
        shown="models.toml in the user's config folder",
        help="A models.toml with named models and defaults.",
    )
    ctx_size: int = option(
        0, "-c", "--ctx-size", panel=CONTEXT, shapes=True, metavar="N", env="LLAMA_ARG_CTX_SIZE", low=0, high=MOST_CTX,
        shown="the model's own, as memory allows",
        help="Tokens of context, prompt and answer together; rounded up to a multiple of 256.",
    )
    ctx_size_draft: int = option(
        0, "-cd", "--ctx-size-draft", panel=CONTEXT, shapes=True, metavar="N", low=0, high=MOST_CTX,
        shown="as the target",
        help="The draft model's context (not in llama.cpp); past its end drafting stops.",
    )
    batch_size: int = option(
        2048, "-b", "--batch-size", panel=CONTEXT, metavar="N", env="LLAMA_ARG_BATCH", low=1, high=MOST_CTX,
        help="Most tokens in one call; a draft and its root must fit.",
    )
    ubatch_size: int = option(
        512, "-ub", "--ubatch-size", panel=CONTEXT, metavar="N", env="LLAMA_ARG_UBATCH", low=1, high=MOST_CTX,
        help="Most tokens computed at once.",
    )
    threads: int = option(
        -1, "-t", "--threads", panel=CONTEXT, metavar="N", env="LLAMA_ARG_THREADS", low=-1, high=MOST_THREADS,
        shown="physical cores this process may use, fewer while other programs use them",
        help="Threads for one token at a time.",
    )
    threads_batch: int = option(
        -1, "-tb", "--threads-batch", panel=CONTEXT, metavar="N", low=-1, high=MOST_THREADS, shown="as -t",
        help="Threads for several tokens at once: prompts and verification.",
    )
    threads_draft: int = option(
        -1, "-td", "--threads-draft", "--spec-draft-threads", panel=CONTEXT, metavar="N", low=-1, high=MOST_THREADS,
        shown="as -t",
        help="The same as -t, for the draft model.",
    )
    threads_batch_draft: int = option(
        -1, "-tbd", "--threads-batch-draft", "--spec-draft-threads-batch", panel=CONTEXT, metavar="N", low=-1,
        high=MOST_THREADS, shown="as -tb",
        help="The same as -tb, for the draft model.",
    )
    flash_attn: int = option(
        -1, "-fa", "--flash-attn", panel=CONTEXT, metavar="on|off|auto", env="LLAMA_ARG_FLASH_ATTN",
        parse=read_flash_attn, shown="auto",
        help="Flash attention; a quantised V cache needs it.",
    )
    swa_full: bool = option(
        False, "--swa-full", panel=CONTEXT, env="LLAMA_ARG_SWA_FULL",
        help="Keep all positions of sliding-window layers: more memory, but old and shared prefixes can be reused.",
    )
    kv_offload: bool = option(
        True, "-kvo", "--kv-offload", panel=CONTEXT, env="LLAMA_ARG_KV_OFFLOAD", off=("-nkvo", "--no-kv-offload"),
        help="Keep the cache on the GPU; --no-kv-offload leaves it in main memory.",
    )
    op_offload: bool = option(
        True, "--op-offload", panel=CONTEXT, off=("--no-op-offload",),
        help="Compute large products on the GPU though the weights are not there; --no-op-offload turns it off.",
    )
    rope_scaling: str = option(
        "model", "--rope-scaling", panel=CONTEXT, metavar="TYPE", env="LLAMA_ARG_ROPE_SCALING_TYPE", shapes=True,
        choices=tuple(ROPE_SCALING),
        help="Scaling of positions: none linear yarn, or as the model says.",
    )
    rope_scale: float = option(
        0.0, "--rope-scale", panel=CONTEXT, metavar="X", env="LLAMA_ARG_ROPE_SCALE", low=0, high=MOST_FLOAT,
        shapes=True, shown="the model's",
        help="Stretch the context by this factor.",
    )
    rope_freq_base: float = option(
        0.0, "--rope-freq-base", panel=CONTEXT, metavar="X", env="LLAMA_ARG_ROPE_FREQ_BASE", low=0, high=1e12,
        shapes=True, shown="the model's",
        help="RoPE's base frequency.",
    )
    rope_freq_scale: float = option(
        0.0, "--rope-freq-scale", panel=CONTEXT, metavar="X", env="LLAMA_ARG_ROPE_FREQ_SCALE", low=0, high=MOST_FLOAT,
        shapes=True, shown="the model's",
        help="RoPE's frequency scale, 1 / --rope-scale.",
    )
    yarn_orig_ctx: int = option(
        0, "--yarn-orig-ctx", panel=CONTEXT, metavar="N", env="LLAMA_ARG_YARN_ORIG_CTX", low=0, high=MOST_CTX,
        shapes=True, shown="the model's",
        help="The context that the model was made for, for YaRN.",
    )
    yarn_ext_factor: float = option(
        -1.0, "--yarn-ext-factor", panel=CONTEXT, metavar="X", env="LLAMA_ARG_YARN_EXT_FACTOR", low=-1, high=MOST_FLOAT,
        shapes=True, shown="the model's",
        help="YaRN's extrapolation mix; 0 is interpolation only.",
    )
    yarn_attn_factor: float = option(
        -1.0, "--yarn-attn-factor", panel=CONTEXT, metavar="X", env="LLAMA_ARG_YARN_ATTN_FACTOR", low=-1,
        high=MOST_FLOAT, shapes=True, shown="the model's",
        help="YaRN's scale of the attention.",
    )
    yarn_beta_slow: float = option(
        -1.0, "--yarn-beta-slow", panel=CONTEXT, metavar="X", env="LLAMA_ARG_YARN_BETA_SLOW", low=-1, high=MOST_FLOAT,
        shapes=True, shown="the model's",
        help="YaRN's alpha.",
    )
    yarn_beta_fast: float = option(
        -1.0, "--yarn-beta-fast", panel=CONTEXT, metavar="X", env="LLAMA_ARG_YARN_BETA_FAST", low=-1, high=MOST_FLOAT,
        shapes=True, shown="the model's",
        help="YaRN's beta.",
    )
    cache_type_k: str = option(
        "f16", "-ctk", "--cache-type-k", panel=CONTEXT, shapes=True, metavar="TYPE", env="LLAMA_ARG_CACHE_TYPE_K",
        choices=CACHE_TYPES,
        help="Type of the cached keys: " + " ".join(CACHE_TYPES) + ".",
    )
    cache_type_v: str = option(
        "f16", "-ctv", "--cache-type-v", panel=CONTEXT, shapes=True, metavar="TYPE", env="LLAMA_ARG_CACHE_TYPE_V",
        choices=CACHE_TYPES,
        help="Type of the cached values.",
    )
    cache_type_k_draft: str = option(
        "f16", "-ctkd", "--cache-type-k-draft", "--spec-draft-type-k", panel=CONTEXT, shapes=True, metavar="TYPE",
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", choices=CACHE_TYPES,
        help="Keys of the draft model.",
    )
    cache_type_v_draft: str = option(
        "f16", "-ctvd", "--cache-type-v-draft", "--spec-draft-type-v", panel=CONTEXT, shapes=True, metavar="TYPE",
        env="LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", choices=CACHE_TYPES,
        help="Values of the draft model.",
    )
    prompt: str | None = option(
        None, "-p", "--prompt", panel=PROMPT, metavar="TEXT", command_line_only=True, commands=NOT_BATCH,
        help="What to answer or continue, before the text of -f and of a pipe. chat: the first turn.",
    )
    file: tuple[str, ...] = option(
        (), "-f", "--file", panel=PROMPT, metavar="FILE", command_line_only=True,
        help="Read the prompt (batch: the rows, chat: the first turn) from a file, '-' for standard input; one final "
        "newline is dropped. May be repeated, but for batch.",
    )
    system_prompt: str | None = option(
        None, "-sys", "--system-prompt", panel=PROMPT, metavar="TEXT", row=(),
        help="System message for the chat template.",
    )
    raw: bool = option(
        False, "--raw", "-no-cnv", "--no-conversation", panel=PROMPT, row=(), commands=NOT_CHAT,
        help="Continue the text as it is, without the model's chat template.",
    )
    chat_template: str | None = option(
        None, "--chat-template", panel=PROMPT, metavar="JINJA|chatml", env="LLAMA_ARG_CHAT_TEMPLATE", shapes=True,
        shown="the model's own",
        help="A Jinja chat template, or the name chatml.",
    )
    chat_template_file: Path | None = option(
        None, "--chat-template-file", panel=PROMPT, metavar="FILE", env="LLAMA_ARG_CHAT_TEMPLATE_FILE",
        help="A Jinja chat template from a file.",
    )
    chat_template_kwargs: str | None = option(
        None, "--chat-template-kwargs", panel=PROMPT, metavar="JSON", env="LLAMA_ARG_CHAT_TEMPLATE_KWARGS", row=(),
        help="An object with further values for the chat template.",
    )
    reasoning: str = option(
        "auto", "-rea", "--reasoning", panel=PROMPT, metavar="on|off|auto", env="LLAMA_ARG_REASONING", row=(),
        choices=("on", "off", "auto"),
        help="Let a template that knows enable_thinking turn it on or off; auto is on.",
    )
    reasoning_effort: str | None = option(
        None, "--reasoning-effort", panel=PROMPT, metavar="LEVEL", env="LLAMA_ARG_REASONING_EFFORT", row=(),
        help="How much a template that knows reasoning_effort lets the model think, such as low, medium, high.",
    )
    prefill_assistant: bool = option(
        True, "--prefill-assistant", panel=PROMPT, env="LLAMA_ARG_PREFILL_ASSISTANT", shapes=True,
        off=("--no-prefill-assistant",), commands=BATCH_ONLY,
        help="Continue a last message of the assistant's; --no-prefill-assistant closes it and answers anew.",
    )
    parse_special: bool = option(
        False, "--parse-special", panel=PROMPT, row=(),
        help="Read control-token strings in the user's text as control tokens (--raw always does).",
    )
    escape: bool = option(
        True, "-e", "--escape", panel=PROMPT, off=("--no-escape",),
        help="Read \\n \\r \\t \\' \\\" \\\\ \\xHH in -p and --stop as escapes; --no-escape turns it off.",
    )
    single_turn: bool = option(
        False, "-st", "--single-turn", panel=CONVERSATION, commands=CHAT_ONLY, command_line_only=True,
        help="Leave after one answer.",
    )
    context_shift: bool = option(
        False, "--context-shift", panel=CONVERSATION, env="LLAMA_ARG_CONTEXT_SHIFT", off=("--no-context-shift",),
        commands=CHAT_ONLY,
        help="When the context is nearly full, drop the oldest turns until half of it is free.",
    )
    show_timings: bool = option(
        True, "--show-timings", panel=CONVERSATION, env="LLAMA_ARG_SHOW_TIMINGS", off=("--no-show-timings",),
        commands=CHAT_ONLY,
        help="A line with speed and acceptance after each answer; --no-show-timings leaves it out.",
    )
    hide_thinking: bool = option(
        False, "--hide-thinking", panel=CONVERSATION, commands=CHAT_ONLY,
        help="Do not show what a model thinks before it answers.",
    )
    markdown: bool = option(
        False, "--markdown", panel=CONVERSATION, commands=CHAT_ONLY,
        help="On a terminal, show answers as rendered Markdown.",
    )
    multiline_input: bool = option(
        False, "-mli", "--multiline-input", panel=CONVERSATION, commands=CHAT_ONLY,
        help="Enter adds a line, and sends behind a \\; without it, the other way round.",
    )
    vi: bool = option(
        False, "--vi", panel=CONVERSATION, commands=CHAT_ONLY,
        help="Vi keys in the input line instead of Emacs's.",
    )
    simple_io: bool = option(
        False, "--simple-io", panel=CONVERSATION, commands=CHAT_ONLY,
        help="On a terminal, plain lines in and out: no editing, no status line.",
    )
    parallel: int = option(
        -1, "-np", "--parallel", panel=BATCH, metavar="N", env="LLAMA_ARG_N_PARALLEL", commands=BATCH_ONLY,
        parse=read_parallel, low=-1, high=MOST_ROWS, choices=(f"1 to {MOST_ROWS}", "auto"), shown="4, as memory allows",
        help="Rows at a time; each has a context of -c tokens.",
    )
    format: str = option(
        "auto", "--format", panel=BATCH, metavar="auto|jsonl|text", commands=BATCH_ONLY, command_line_only=True,
        choices=("auto", "jsonl", "text"),
        help="jsonl: an object a line; text: a prompt a line. auto goes by the file's name, else by its first line.",
    )
    resume: bool = option(
        False, "--resume", panel=BATCH, commands=BATCH_ONLY, command_line_only=True,
        help="Go on with the -o file of an earlier run: rows that it answers are skipped.",
    )
    retry_errors: bool = option(
        False, "--retry-errors", panel=BATCH, commands=BATCH_ONLY, command_line_only=True,
        help="With --resume: try the rows again that failed.",
    )
    unordered: bool = option(
        False, "--unordered", panel=BATCH, commands=BATCH_ONLY, command_line_only=True,
        help="Write rows as they finish instead of in the order of the input.",
    )
    progress_every: float = option(
        0.0, "--progress-every", panel=BATCH, metavar="SECONDS", commands=BATCH_ONLY, command_line_only=True,
        low=0, high=86400, shown="a bar on a terminal, else nothing",
        help="Print a line of progress every so many seconds.",
    )
    stats: Path | None = option(
        None, "--stats", panel=BATCH, metavar="FILE", commands=BATCH_ONLY, command_line_only=True,
        help="Write the numbers of the whole run to FILE, as JSON.",
    )
    predict: int = option(
        -1, "-n", "--predict", "--n-predict", "--max-tokens", "--max-new-tokens", panel=SAMPLING, metavar="N",
        env="LLAMA_ARG_N_PREDICT", low=-1, high=INT32, row=("max_completion_tokens",),
        shown="-1: until the model ends",
        help="Most tokens to generate.",
    )
    stop: tuple[str, ...] = option(
        (), "-r", "--stop", "--reverse-prompt", panel=SAMPLING, metavar="TEXT", shown="", row=(),
        help="End before this text; may be given several times.",
    )
    seed: int = option(
        RANDOM_SEED, "-s", "--seed", panel=SAMPLING, metavar="N", row=(), low=-1, high=RANDOM_SEED, shown="-1: random",
        help="Random seed; the one used is always reported. batch: every row has this one, unless it sets its own.",
    )
    temp: float = option(
        0.8, "--temp", "--temperature", panel=SAMPLING, metavar="T", env="LLAMA_ARG_TEMPERATURE",
        low=-MOST_FLOAT, high=MOST_FLOAT, row=(),
        help="Temperature; 0 or less is greedy.",
    )
    top_k: int = option(
        40, "--top-k", panel=SAMPLING, metavar="N", env="LLAMA_ARG_TOP_K", low=-INT32, high=INT32, row=(),
        help="Keep the N likeliest tokens; 0 is off.",
    )
    top_p: float = option(
        0.95, "--top-p", panel=SAMPLING, metavar="P", env="LLAMA_ARG_TOP_P", low=0, high=1, row=(),
        help="Keep the likeliest tokens up to this probability in all; 1 is off.",
    )
    min_p: float = option(
        0.05, "--min-p", panel=SAMPLING, metavar="P", env="LLAMA_ARG_MIN_P", low=0, high=1, row=(),
        help="Keep tokens at least this likely, relative to the likeliest; 0 is off.",
    )
    repeat_last_n: int = option(
        64, "--repeat-last-n", panel=SAMPLING, metavar="N", low=0, high=MOST_CTX, row=(),
        help="How many last tokens the penalties look at; 0 is off.",
    )
    repeat_penalty: float = option(
        1.0, "--repeat-penalty", panel=SAMPLING, metavar="X", env="LLAMA_ARG_REPEAT_PENALTY", low=1e-6, high=MOST_FLOAT,
        row=(),
        help="Divide the logits of repeated tokens; 1 is off.",
    )
    presence_penalty: float = option(
        0.0, "--presence-penalty", panel=SAMPLING, metavar="X", env="LLAMA_ARG_PRESENCE_PENALTY",
        low=-MOST_FLOAT, high=MOST_FLOAT, row=(),
        help="Lower the logits of tokens seen; 0 is off.",
    )
    frequency_penalty: float = option(
        0.0, "--frequency-penalty", panel=SAMPLING, metavar="X", env="LLAMA_ARG_FREQUENCY_PENALTY",
        low=-MOST_FLOAT, high=MOST_FLOAT, row=(),
        help="Lower them by how often they were seen; 0 is off.",
    )
    samplers: tuple[str, ...] = option(
        DEFAULT_SAMPLERS, "--samplers", panel=SAMPLING, metavar="NAME;...", parse=read_samplers, row=(),
        choices=tuple(SAMPLERS),
        shown=";".join(DEFAULT_SAMPLERS),
        help="The samplers in their order; adaptive_p, if named, chooses in the end.",
    )
    sampler_seq: tuple[str, ...] | None = option(
        None, "--sampler-seq", "--sampling-seq", panel=SAMPLING, metavar="LETTERS", parse=read_sampler_letters,
        choices=tuple(f"{letter} ({name})" for name, letter in SAMPLERS.items()),
        help="The same by letters, " + "".join(SAMPLERS[name] for name in DEFAULT_SAMPLERS) + " by default; it wins.",
    )
    typical: float = option(
        1.0, "--typical", "--typical-p", panel=SAMPLING, metavar="P", low=0, high=1, row=(),
        help="Locally typical sampling; 1 is off.",
    )
    top_n_sigma: float = option(
        -1.0, "--top-n-sigma", "--top-nsigma", panel=SAMPLING, metavar="N", low=-MOST_FLOAT, high=MOST_FLOAT, row=(),
        help="Keep logits within N standard deviations of the highest; below 0 is off.",
    )
    xtc_probability: float = option(
        0.0, "--xtc-probability", panel=SAMPLING, metavar="P", low=0, high=1, row=(),
        help="How often to exclude top choices (XTC); 0 is off.",
    )
    xtc_threshold: float = option(
        0.1, "--xtc-threshold", panel=SAMPLING, metavar="P", low=0, high=1, row=(),
        help="XTC excludes all but the least likely of the tokens above this probability.",
    )
    dry_multiplier: float = option(
        0.0, "--dry-multiplier", panel=SAMPLING, metavar="X", low=0, high=MOST_FLOAT, row=(),
        help="Penalty for going on with a repeated sequence (DRY); 0 is off.",
    )
    dry_base: float = option(
        1.75, "--dry-base", panel=SAMPLING, metavar="X", low=1, high=MOST_FLOAT, row=(),
        help="DRY's penalty grows by this factor with each token of the sequence.",
    )
    dry_allowed_length: int = option(
        2, "--dry-allowed-length", panel=SAMPLING, metavar="N", low=0, high=INT32, row=(),
        help="Longest repeat that DRY lets pass.",
    )
    dry_penalty_last_n: int = option(
        64, "--dry-penalty-last-n", panel=SAMPLING, metavar="N", low=0, high=MOST_CTX, row=(),
        help="How many last tokens DRY looks at.",
    )
    dry_sequence_breaker: tuple[str, ...] = option(
        ("\n", ":", '"', "*"), "--dry-sequence-breaker", panel=SAMPLING, metavar="TEXT", shown="\\n : \" *",
        row=("dry_sequence_breakers",),
        help="Text that ends a DRY sequence, instead of the default ones; may be repeated; none: no such text.",
    )
    dynatemp_range: float = option(
        0.0, "--dynatemp-range", panel=SAMPLING, metavar="X", low=0, high=MOST_FLOAT, row=(),
        help="Let the temperature vary by this much with the entropy; 0 is off.",
    )
    dynatemp_exp: float = option(
        1.0, "--dynatemp-exp", panel=SAMPLING, metavar="X", low=-MOST_FLOAT, high=MOST_FLOAT,
        row=("dynatemp_exponent",),
        help="How entropy maps to the dynamic temperature.",
    )
    mirostat: int = option(
        0, "--mirostat", panel=SAMPLING, metavar="0|1|2", low=0, high=2, row=(),
        help="Mirostat 1 or 2 instead of the samplers above, but for the temperature.",
    )
    mirostat_lr: float = option(
        0.1, "--mirostat-lr", panel=SAMPLING, metavar="X", low=0, high=MOST_FLOAT, row=("mirostat_eta",),
        help="Mirostat's learning rate, eta.",
    )
    mirostat_ent: float = option(
        5.0, "--mirostat-ent", panel=SAMPLING, metavar="X", low=0, high=MOST_FLOAT, row=("mirostat_tau",),
        help="Mirostat's target entropy, tau.",
    )
    adaptive_target: float = option(
        -1.0, "--adaptive-target", panel=SAMPLING, metavar="P", low=-MOST_FLOAT, high=1, row=(),
        help="adaptive_p prefers tokens near this probability; below 0 is off.",
    )
    adaptive_decay: float = option(
        0.9, "--adaptive-decay", panel=SAMPLING, metavar="X", low=0, high=0.99, row=(),
        help="How slowly adaptive_p's target follows what was chosen.",
    )
    logit_bias: tuple[str, ...] = option(
        (), "-l", "--logit-bias", panel=SAMPLING, metavar="ID+-BIAS", each=read_bias, row=(),
        help="Change the logit of a token, such as 15043+1 or 15043-inf; may be repeated.",
    )
    ignore_eos: bool = option(
        False, "--ignore-eos", panel=SAMPLING, row=(),
        help="Never sample a token that ends the answer.",
    )
    grammar: str | None = option(
        None, "--grammar", panel=SAMPLING, metavar="GBNF", row=(),
        help="Let the answer follow this grammar, whose first rule is root.",
    )
    grammar_file: Path | None = option(
        None, "--grammar-file", panel=SAMPLING, metavar="FILE",
        help="Let the answer follow the grammar (GBNF) in a file.",
    )
    json_schema: str | None = option(
        None, "-j", "--json-schema", panel=SAMPLING, metavar="JSON", row=(),
        help="Let the answer be JSON that this schema describes; {} is any object.",
    )
    json_schema_file: Path | None = option(
        None, "-jf", "--json-schema-file", panel=SAMPLING, metavar="FILE",
        help="The same, from a file.",
    )
    spec_type: tuple[str, ...] | None = option(
        None, "--spec-type", panel=SPECULATION, metavar="TYPE,...", env="LLAMA_ARG_SPEC_TYPE", parse=read_types,
        row=(), choices=("none", "ngram-simple", "draft-simple", "draft-eagle3", "draft-mtp"),
        shown="what -md is made for; else draft-mtp where the model has MTP layers; else ngram-simple capped at 8",
        help="How to guess: none, ngram-simple, draft-simple, draft-eagle3, draft-mtp; the first in this order "
        "that has a guess wins.",
    )
    spec_draft_n_max: int | None = option(
        None, "--spec-draft-n-max", "--num-speculative-tokens", panel=SPECULATION, metavar="N",
        env="LLAMA_ARG_SPEC_DRAFT_N_MAX", low=0, high=MOST_GUESSES, row=("n_max",), shown="3 for draft-*",
        help="Most guesses a round, whichever type made them; 0 drafts nothing.",
    )
    spec_draft_n_min: int = option(
        0, "--spec-draft-n-min", panel=SPECULATION, metavar="N", env="LLAMA_ARG_SPEC_DRAFT_N_MIN", low=0,
        high=MOST_GUESSES,
        help="Throw away shorter drafts of a draft model or head.",
    )
    spec_draft_p_min: float = option(
        0.0, "--spec-draft-p-min", "--draft-p-min", panel=SPECULATION, metavar="P", env="LLAMA_ARG_SPEC_DRAFT_P_MIN",
        low=0, high=1,
        help="A draft model or head stops guessing below this probability.",
    )
    spec_ngram_simple_size_n: int = option(
        12, "--spec-ngram-simple-size-n", panel=SPECULATION, metavar="N", low=1, high=1024,
        help="Length of the repeat that ngram-simple looks for.",
    )
    spec_ngram_simple_size_m: int = option(
        48, "--spec-ngram-simple-size-m", panel=SPECULATION, metavar="N", low=1, high=MOST_GUESSES,
        help="How many tokens after it ngram-simple guesses; below N it never does.",
    )
    spec_ngram_simple_min_hits: int = option(
        1, "--spec-ngram-simple-min-hits", panel=SPECULATION, metavar="N", low=1, high=INT32,
        help="Read and, as in llama.cpp, without effect.",
    )
    logprobs: int | None = option(
        None, "--logprobs", panel=OUTPUT, metavar="K", low=0, high=MOST_LOGPROBS, row=("n_probs",),
        commands=NOT_CHAT,
        help="With --json: the log probability of each token, and of the K likeliest at its place.",
    )
    color: str = option(
        "off", "-co", "--color", panel=OUTPUT, metavar="on|off|auto", choices=("on", "off", "auto"),
        commands=NOT_BATCH,
        help="Colour the answer by who guessed it; auto: on a terminal, unless NO_COLOR is set.",
    )
    special: bool = option(False, "-sp", "--special", panel=OUTPUT, row=(), help="Print control tokens.")
    output: Path | None = option(
        None, "-o", "--output", "--output-file", panel=OUTPUT, metavar="FILE", command_line_only=True,
        help="Write to a new FILE instead of standard output; chat: write a transcript to it.",
    )
    json: bool = option(
        False, "--json", panel=OUTPUT, command_line_only=True, commands=GENERATE_ONLY, help="Print one JSON object."
    )
    verbose: bool = option(
        False, "-v", "--verbose", "--log-verbose", panel=OUTPUT,
        help="Also show acceptance by position, a line for each drafter, and llama.cpp's log.",
    )
    quiet: bool = option(
        False, "-q", "--quiet", panel=OUTPUT,
        help="Print the answer and errors, nothing else.",
    )
    debug: bool = option(
        False, "--debug", panel=OUTPUT, command_line_only=True,
        help="Show a traceback with an error.",
    )
    # fmt: on

    origins: Mapping[str, str] = field(default_factory=dict)
    """For each field that was set: where (a flag, an environment name, a place in models.toml)."""
    notes: tuple[str, ...] = ()
    """What a person should know about how their words were taken, a line each."""


@cache
def flags(command: str | None = None) -> dict[str, Flag]:
    """Field name -> flag, in the order of the table: of one command, or all."""
    every = {f.name: f.metadata["flag"] for f in fields(Settings) if "flag" in f.metadata}
    return {name: flag for name, flag in every.items() if not (command and flag.commands) or command in flag.commands}


@cache
def row_fields() -> dict[str, str]:
    """What a request may set: its names for it -> the field."""
    return {key: name for name, flag in flags().items() for key in flag.row_keys}


@cache
def _kinds() -> dict[str, type]:
    hints = get_type_hints(Settings)
    return {name: _plain(hints[name]) for name in flags()}


def kind_of(name: str) -> type:
    """The plain type of a field: int, float, str, bool, Path, or tuple for a list."""
    return _kinds()[name]


def _plain(hint: Any) -> type:
    """`int | None` -> int, `tuple[str, ...]` -> tuple."""
    if isinstance(hint, type) and not get_args(hint):
        return hint
    inner = [arg for arg in get_args(hint) if arg not in (type(None), ...)]
    return tuple if str(hint).startswith("tuple") else _plain(inner[0])


def is_switch(name: str) -> bool:
    """Whether the field is a flag without a value."""
    return kind_of(name) is bool


def is_list(name: str) -> bool:
    """Whether the flag may be given several times, one value each."""
    return kind_of(name) is tuple and flags()[name].parse is None


def seed_of(settings: Settings) -> int | None:
    """The fixed seed, or None for a random one (-1 and 4294967295, as in llama.cpp)."""
    return None if settings.seed in (-1, RANDOM_SEED) else settings.seed
