"""How a model file is loaded: devices, layers, tensors, metadata, as llama.cpp takes them."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spec_cli.errors import FileError, UsageError
from spec_cli.llama.context import gpu_offload
from spec_cli.llama.log import C
from spec_cli.settings import LOAD_MODES, SPLIT_MODES, Settings, read_kv_override

MOE = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"  # common/common.h, LLM_FFN_EXPS_REGEX
MOST_LAYERS = 512


class _TensorOverride(ctypes.Structure):
    _fields_ = (("pattern", ctypes.c_char_p), ("buft", ctypes.c_void_p))


def known_devices() -> dict[str, int]:
    """The devices of this build by name (ggml-backend.h)."""
    lib = C.llama_cpp._lib
    lib.ggml_backend_dev_count.restype = ctypes.c_size_t
    lib.ggml_backend_dev_get.argtypes, lib.ggml_backend_dev_get.restype = [ctypes.c_size_t], ctypes.c_void_p
    lib.ggml_backend_dev_name.argtypes, lib.ggml_backend_dev_name.restype = [ctypes.c_void_p], ctypes.c_char_p
    found = [lib.ggml_backend_dev_get(i) for i in range(lib.ggml_backend_dev_count())]
    return {lib.ggml_backend_dev_name(device).decode(): device for device in found}


GPU_FLAGS = ("gpu_layers", "gpu_layers_draft", "split_mode", "tensor_split", "main_gpu")  # -dev names what there is


def about_devices(s: Settings) -> list[str]:
    """What a person should know: GPU flags that do nothing in this build, and with -v where the model runs."""
    lines, gpu = [], gpu_offload()
    asked = [name for name in GPU_FLAGS if name in s.origins and getattr(s, name) not in (_unset(name), 0)]
    if asked and not gpu:
        flags = ", ".join(f"{s.origins[name]} {_text(getattr(s, name))}" for name in asked)
        package = f"llama-cpp-python=={C.__version__}"
        how = f'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir {package} builds one'
        lines.append(f"{flags}: this build of llama.cpp has no GPU backend: everything runs on the CPU ({how})")
    if s.verbose:
        cpu = not gpu or s.gpu_layers == 0 or s.device == ("none",)
        names = ["CPU"] if cpu else list(s.device) or list(known_devices())
        lines.append(f"devices: {', '.join(names)}")
    return lines


def _unset(name: str) -> Any:
    return Settings.__dataclass_fields__[name].default


def _text(value: Any) -> str:
    """A setting as on a command line."""
    value = {-2: "all"}.get(value, value) if isinstance(value, int) else value
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _buffers() -> dict[str, int]:
    """The memory that tensors can lie in, by name."""
    lib = C.llama_cpp._lib
    for name, result in (
        ("ggml_backend_dev_buffer_type", ctypes.c_void_p),
        ("ggml_backend_buft_name", ctypes.c_char_p),
    ):
        getattr(lib, name).argtypes, getattr(lib, name).restype = [ctypes.c_void_p], result
    bufts = [lib.ggml_backend_dev_buffer_type(device) for device in known_devices().values()]
    return {lib.ggml_backend_buft_name(buft).decode(): buft for buft in bufts if buft}


@dataclass(frozen=True)
class LoadParams:
    """How one model is loaded. Texts are the flags' own. mtp: with its multi-token-prediction layers."""

    n_gpu_layers: int = -1
    repack: bool = True
    load_mode: str = "auto"
    split_mode: str = "layer"
    main_gpu: int = 0
    tensor_split: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    override_tensor: tuple[str, ...] = ()
    override_kv: tuple[str, ...] = ()
    check_tensors: bool = False
    no_host: bool = False
    lora: tuple[tuple[Path, float], ...] = ()
    mtp: bool = False

    @classmethod
    def of(cls, s: Settings, *, draft: bool = False) -> LoadParams:
        """What the flags say. A draft follows the target's devices unless it has its own."""
        moe = s.n_cpu_moe_draft if draft else s.n_cpu_moe
        patterns = [rf"blk\.{i}{MOE}=CPU" for i in range(min(moe, MOST_LAYERS))]
        patterns += [f"{MOE}=CPU"] if (s.cpu_moe_draft if draft else s.cpu_moe) else []
        tensors = s.override_tensor_draft if draft else s.override_tensor
        adapters = [(Path(file), 1.0) for file in s.lora] + [
            (Path(file), float(scale)) for file, _, scale in (text.rpartition(":") for text in s.lora_scaled)
        ]
        return cls(
            n_gpu_layers=s.gpu_layers_draft if draft else s.gpu_layers,
            load_mode=s.load_mode,
            split_mode=s.split_mode,
            main_gpu=s.main_gpu,
            tensor_split=s.tensor_split,
            device=(s.device_draft or s.device) if draft else s.device,
            override_tensor=(*(part for text in tensors for part in text.split(",")), *patterns),
            override_kv=s.override_kv,
            check_tensors=s.check_tensors,
            no_host=s.no_host,
            lora=() if draft else tuple(adapters),
        )

    def c(self) -> tuple[Any, list[Any]]:
        """llama.cpp's struct, and what must live as long as the load. Raises UsageError for unknown names."""
        params, kept = C.llama_model_default_params(), []
        params.n_gpu_layers, params.use_extra_bufts = self.n_gpu_layers, self.repack
        params.load_mode = getattr(C, f"LLAMA_LOAD_MODE_{LOAD_MODES[self.load_mode]}")
        params.split_mode = getattr(C, f"LLAMA_SPLIT_MODE_{SPLIT_MODES[self.split_mode]}")
        params.load_mtp = self.mtp
        params.main_gpu, params.check_tensors, params.no_host = self.main_gpu, self.check_tensors, self.no_host
        if self.tensor_split:
            shares = (ctypes.c_float * max(16, C.llama_max_devices()))(*map(float, self.tensor_split))
            params.tensor_split = shares
            kept.append(shares)
        if self.device:
            handles = (
                [] if self.device == ("none",) else [_named(known_devices(), d, "-dev/--device") for d in self.device]
            )
            devices = (ctypes.c_void_p * (len(handles) + 1))(*handles, None)
            params.devices = ctypes.cast(devices, dict(params._fields_)["devices"])
            kept.append(devices)
        if self.override_tensor:
            pairs = [text.rpartition("=") for text in self.override_tensor]
            overrides = (_TensorOverride * (len(pairs) + 1))()
            for override, (pattern, _, buffer) in zip(overrides, pairs, strict=False):
                override.pattern, override.buft = pattern.encode(), _named(_buffers(), buffer, "-ot/--override-tensor")
            params.tensor_buft_overrides = ctypes.cast(overrides, dict(params._fields_)["tensor_buft_overrides"])
            kept.append(overrides)
        if self.override_kv:
            values = (C.llama_model_kv_override * (len(self.override_kv) + 1))()
            for slot, text in zip(values, self.override_kv, strict=False):
                _fill(slot, *read_kv_override(text))
            params.kv_overrides = values
            kept.append(values)
        return params, kept


def _named(known: dict[str, int], name: str, flag: str) -> int:
    if name not in known:
        raise UsageError(f"{flag}: {name!r} is not known to this build of llama.cpp (there is {', '.join(known)})")
    return known[name]


def _fill(slot: Any, key: str, value: int | float | bool | str) -> None:
    """One override of metadata; the last one in C's list has an empty key."""
    slot.key = key.encode()
    if isinstance(value, bool):
        slot.tag, slot.value.val_bool = C.LLAMA_KV_OVERRIDE_TYPE_BOOL, value
    elif isinstance(value, int):
        slot.tag, slot.value.val_i64 = C.LLAMA_KV_OVERRIDE_TYPE_INT, value
    elif isinstance(value, float):
        slot.tag, slot.value.val_f64 = C.LLAMA_KV_OVERRIDE_TYPE_FLOAT, value
    else:
        slot.tag, slot.value.val_str = C.LLAMA_KV_OVERRIDE_TYPE_STR, value.encode()


def check_adapters(params: LoadParams) -> None:
    """Raises FileError for a LoRA file that is none."""
    for path, _ in params.lora:
        try:
            magic = path.open("rb").read(4)
        except OSError as error:
            raise FileError(f"--lora: {path}: {error.strerror}") from None
        if magic != b"GGUF":
            raise FileError(f"--lora: {path} is not a GGUF file (it starts with {magic!r})")


def check_patterns(params: LoadParams) -> None:
    """Raises UsageError for a pattern that C's regular expressions would throw at."""
    for text in params.override_tensor:
        pattern, equals, _ = text.rpartition("=")
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"-ot/--override-tensor: {pattern!r}: {error}") from None
        if not equals:
            raise UsageError(f"-ot/--override-tensor: {text!r} is not PATTERN=BUFFER")
