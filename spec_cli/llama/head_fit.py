"""Whether a head can guess for a target: all that llama.cpp would assert, or never ask."""

from __future__ import annotations

from spec_cli.errors import FileError
from spec_cli.llama.header import Gguf, opened
from spec_cli.llama.hidden import LAYER_INPUTS, NEXTN_STATES
from spec_cli.llama.log import C
from spec_cli.llama.model import Model
from spec_cli.llama.vocab import require_compatible

INT64 = 27  # GGML_TYPE_I64
N_INPUTS = 3  # layers of the target that EAGLE-3 reads


def target_layers(head: Model) -> list[int]:
    """The target's layers whose inputs an EAGLE-3 file reads."""
    with opened(head.path) as header:
        return (header and header.integers(f"{header.arch}.target_layers")) or []


def require_fitting(target: Model, head: Model) -> None:
    """Raises FileError. The head may be the target's own."""
    if head is not target:
        require_compatible(target.vocab, head.vocab, str(target.path), str(head.path))
    if head.arch == "eagle3":
        _require_eagle3(target, head)
    else:
        _require_mtp(target, head)


def _width(model: Model) -> int:
    return int(C.llama_model_n_embd_out(model.handle))


def _require_mtp(target: Model, head: Model) -> None:
    if target.arch not in NEXTN_STATES:
        raise FileError(f"target model {target.path}: llama.cpp's {target.arch} models give nothing to MTP heads")
    if _width(head) != _width(target):
        raise _misfit(target, head, "hidden states", _width(head), _width(target))
    if head.arch != "gemma4-assistant":
        return
    if target.arch != "gemma4":
        raise FileError(f"draft model {head.path} looks into a gemma4 model's memory; {target.path} is {target.arch}")
    for key in ("key_length", "key_length_swa"):
        theirs, ours = head.meta(f"{head.arch}.attention.{key}"), target.meta(f"{target.arch}.attention.{key}")
        if theirs != ours:
            raise _misfit(target, head, f"keys ({key})", theirs, ours)


def _require_eagle3(target: Model, head: Model) -> None:
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
    with opened(head.path) as header:
        assert header is not None
        hidden = header.value("eagle3.target_hidden_size")
        if hidden != width:
            raise _misfit(target, head, "hidden states", hidden, width)
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
    return FileError(f"draft model {head.path} is made for {what} of {theirs} values; {target.path} has {ours}")
