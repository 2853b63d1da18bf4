"""A GGUF file in memory: its weights, its facts, its vocabulary."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from types import TracebackType
from typing import Any

from spec_cli.apart import at
from spec_cli.errors import FileError, Interrupted
from spec_cli.llama import log
from spec_cli.llama.abort import Abort
from spec_cli.llama.loading import LoadParams
from spec_cli.llama.log import C
from spec_cli.llama.vocab import Vocab

HEADS = ("eagle3", "dflash")  # architectures of files that only guess for a target


def has_amx() -> bool:
    """Whether this build of llama.cpp would use Intel AMX tiles.

    Its kernels crash when compiled by common releases of GCC, whose `_tile_loadconfig` does not
    tell the compiler which memory it reads; llama.cpp's own tools crash the same way.
    """
    return b"AMX_INT8 = 1" in C.llama_print_system_info()


class Model:
    """Weights and vocabulary. Free the contexts made from it first.

    dry: read the header and the vocabulary, allocate nothing: enough to compare vocabularies and
    to ask what a context would cost.
    Raises FileError when llama.cpp refuses the file, Interrupted when `abort` is set meanwhile.
    """

    def __init__(
        self, path: Path, role: str, how: LoadParams | None = None, *, dry: bool = False, abort: Abort | None = None
    ) -> None:
        self.path, self.role = path, role
        at(f"{role} model {path}")
        params, kept = (how or LoadParams()).c()
        if dry:
            params.no_alloc, params.load_mode = True, C.LLAMA_LOAD_MODE_NONE
        progress = C.llama_progress_callback(lambda done, _: abort is None or not abort.is_set)
        params.progress_callback = progress
        log.forget()
        self.handle = C.llama_model_load_from_file(os.fsencode(path), params)
        del kept
        if abort is not None and abort.is_set:
            self.close()
            raise Interrupted("interrupted")
        if not self.handle:
            raise FileError(f"{role} model {path} cannot be loaded: {log.reason()}")
        self.vocab = Vocab(C.llama_model_get_vocab(self.handle))
        self.arch = self.meta("general.architecture") or ""
        self.n_ctx_train: int = C.llama_model_n_ctx_train(self.handle)
        self.n_swa: int = C.llama_model_n_swa(self.handle)
        self.n_nextn: int = C.llama_model_n_layer_nextn(self.handle)
        self.n_bytes: int = C.llama_model_size(self.handle)
        self.adapters: list[tuple[Any, float]] = []
        for file, scale in how.lora if how else ():
            self.adapters.append((self._adapter(file), scale))
        self.recurrent: bool = C.llama_model_is_recurrent(self.handle)
        self.can_drop_suffix = not (self.recurrent or C.llama_model_is_hybrid(self.handle))

    def _adapter(self, path: Path) -> Any:
        """A LoRA; it lives as long as the model. Raises FileError."""
        log.forget()
        adapter = C.llama_adapter_lora_init(self.handle, os.fsencode(path))
        if not adapter:
            self.close()
            raise FileError(f"--lora: {path} does not fit {self.path}: {log.reason()}")
        return adapter

    def require_language_model(self) -> None:
        """Raises FileError for an encoder, a head, or a file without a vocabulary."""
        self.vocab.require_usable(f"{self.role} model {self.path}")
        if not C.llama_model_has_decoder(self.handle) or C.llama_model_has_encoder(self.handle):
            raise self._no_language_model("a draft head" if self.arch in HEADS else "an encoder")
        if C.llama_model_is_diffusion(self.handle):
            raise self._no_language_model("a diffusion model")

    def require_causal(self, context: Any) -> None:
        """Raises FileError if its contexts, such as this one, give embeddings and no next tokens."""
        if not C.llama_get_causal_attn(context) or C.llama_pooling_type(context) > C.LLAMA_POOLING_TYPE_NONE:
            raise self._no_language_model("an embedding model")

    def _no_language_model(self, what: str) -> FileError:
        return FileError(f"{self.role} model {self.path} is no language model but {what} ({self.arch})")

    def meta(self, key: str) -> str | None:
        """A scalar or string of the file's metadata; arrays are not readable this way."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            n = C.llama_model_meta_val_str(self.handle, key.encode(), buffer, size)
            if n < size:
                return None if n < 0 else buffer.value.decode("utf-8", "replace")
            size = n + 1

    def close(self) -> None:
        """Free the weights, once."""
        handle, self.handle = self.handle, None
        if handle:
            C.llama_model_free(handle)

    def __enter__(self) -> Model:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
