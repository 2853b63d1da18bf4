"""Whether a head can guess for a target: all that llama.cpp would assert, or never ask."""

from __future__ import annotations

from collections.abc import Mapping

from spec_cli.errors import FileError
from spec_cli.llama.gguf import Gguf, opened
from spec_cli.llama.hidden import LAYER_INPUTS, NEXTN_STATES
from spec_cli.llama.log import C
from spec_cli.llama.model import Model
from spec_cli.llama.vocab import require_compatible

INT64 = 27  # GGML_TYPE_I64
OTHER_WIDTHS = {"gemma4-assistant", "deepseek4", "qwen4exp"}  # whose states are wider than their rows
N_INPUTS = 3  # layers of the target that EAGLE-3 reads


def target_layers(head: Model) -> list[int]:
    """The target's layers whose inputs an EAGLE-3 file reads."""
    with opened(head.path) as header:
        return header.integers(f"{header.arch}.target_layers") or []


def require_fitting(target: Model, head: Model, overrides: Mapping[str, object] | None = None) -> None:
    """Raises FileError. The head may be the target's own. overrides: of the files' metadata."""
    for model in dict.fromkeys((target, head)):
        width, out = int(C.llama_model_n_embd(model.handle)), _width(model)
        if out != width and model.arch not in OTHER_WIDTHS:
            raise FileError(f"{model.role} model {model.path} says that its states have {out} values, its rows {width}")
    if head is not target:
        require_compatible(target.vocab, head.vocab, str(target.path), str(head.path))
    if head.arch == "eagle3":
        _require_eagle3(target, head, overrides or {})
        return
    if head.arch == "gemma4-assistant":
        _require_assistant(target, head, overrides or {})
    elif head.arch != target.arch and {head.arch, target.arch} != {"nemotron_h", "nemotron_h_moe"}:
        raise FileError(f"draft model {head.path} is made for {head.arch} models; {target.path} is {target.arch}")
    if _width(head) != _width(target):
        raise _misfit(target, head, "hidden states of width", _width(head), _width(target))


def _width(model: Model) -> int:
    return int(C.llama_model_n_embd_out(model.handle))


def _require_assistant(target: Model, head: Model, overrides: Mapping[str, object]) -> None:
    """It reads what the target's last two layers have in memory: the last but one has a window."""
    if target.arch != "gemma4":
        raise FileError(f"draft model {head.path} looks into a gemma4 model's memory; {target.path} is {target.arch}")
    with opened(target.path, overrides, "target") as theirs, opened(head.path, overrides) as mine:
        for key in ("key_length", "key_length_swa", "value_length", "value_length_swa"):
            a, b = mine.value(f"{head.arch}.attention.{key}"), theirs.value(f"{target.arch}.attention.{key}")
            if a is None or a != b:
                raise _misfit(target, head, f"{key} in memory,", a, b)
        n, n_own = int(C.llama_model_n_layer(target.handle)), head.n_nextn
        kv = _by_layer(theirs, f"{target.arch}.attention.head_count_kv", n)
        own, heads = (_by_layer(mine, f"{head.arch}.attention.head_count{end}", n_own) for end in ("_kv", ""))
        windows = _by_layer(mine, f"{head.arch}.attention.sliding_window_pattern", n_own)
        for i in range(n_own):
            seen = kv[n - 2 if windows[i] else n - 1]
            if own[i] != seen or not seen or heads[i] % seen:
                raise _misfit(target, head, "head_count_kv", own[i], seen)


def _by_layer(header: Gguf, key: str, n: int) -> list[int]:
    """A number of each layer; the files give one for all, or a list."""
    found = header.integers(key) or [0]
    return (found * n)[:n] if len(found) == 1 else [*found, *[0] * n][:n]


def _require_eagle3(target: Model, head: Model, overrides: Mapping[str, object]) -> None:
    name = f"draft model {head.path}"
    if target.arch not in LAYER_INPUTS:
        raise FileError(f"target model {target.path}: llama.cpp's {target.arch} models give nothing to EAGLE-3")
    n_layer, width = int(C.llama_model_n_layer(target.handle)), int(C.llama_model_n_embd(target.handle))
    layers = target_layers(head)
    if len(layers) != N_INPUTS:
        raise FileError(f"{name} reads {len(layers)} layers of its target; EAGLE-3 reads {N_INPUTS}")
    most = n_layer if target.arch in NEXTN_STATES else n_layer - 1
    for layer in layers:
        if not 0 <= layer <= most:
            raise FileError(f"{name} reads layer {layer} of its target; {target.path} has 0 to {most}")
    with opened(head.path, overrides) as header:
        hidden = header.value("eagle3.target_hidden_size")
        if hidden != width:
            raise _misfit(target, head, "hidden states of width", hidden, width)
        _require_own_tensors(header, target, head, width)


def _require_own_tensors(header: Gguf, target: Model, head: Model, width: int) -> None:
    name, own = f"draft model {head.path}", header.value("eagle3.embedding_length")
    if header.value("eagle3.block_count") != 1:
        raise FileError(f"{name} has {header.value('eagle3.block_count')} layers; EAGLE-3 has one")
    borrowed = [tensor for tensor in ("token_embd.weight", "output.weight") if not header.has(tensor)]
    if borrowed and own != width:
        raise FileError(
            f"{name} has no {' and no '.join(borrowed)}; the target's has rows of {width} values, it needs {own}"
        )
    if borrowed and head.vocab.size != target.vocab.size:
        lacks = f"{name} has no {' and no '.join(borrowed)}"
        raise FileError(f"{lacks}, and {head.vocab.size} tokens where the target has {target.vocab.size}")
    if "token_embd.weight" not in borrowed and header.rows("token_embd.weight", own) < head.vocab.size:
        raise FileError(f"{name} has {header.rows('token_embd.weight', own)} embeddings for {head.vocab.size} tokens")
    if not header.has("d2t"):
        return
    if "output.weight" in borrowed:
        raise FileError(f"{name} has a vocabulary of its own (d2t), and no output.weight for it")
    if header.tensor_type("d2t") != INT64:
        raise FileError(f"{name}: its d2t is not of type I64")
    ids = header.int64("d2t")
    if len(ids) and not 0 <= ids.min() <= ids.max() < head.vocab.size:
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise FileError(f"{name}: its d2t names token {bad}; the vocabulary has {head.vocab.size}")


def _misfit(target: Model, head: Model, what: str, theirs: object, ours: object) -> FileError:
    return FileError(f"draft model {head.path} is made for {what} {theirs}; {target.path} has {ours}")
