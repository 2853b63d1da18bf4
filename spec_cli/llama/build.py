"""What the installed llama.cpp is: its version, its kernels, its devices."""

from __future__ import annotations

import ctypes

from spec_cli.llama.loading import known_devices
from spec_cli.llama.log import C

PINNED, PINNED_COMMIT = "0.3.36", "0c1e57098"
"""The llama-cpp-python that spec-cli is made for, and the commit of llama.cpp inside it."""
MIB = 1 << 20


def version() -> str:
    """Of llama-cpp-python."""
    return str(C.__version__)


def commit() -> str:
    """Of llama.cpp: what the library says, else what is known of the pinned version."""
    lib = C.llama_cpp._lib
    lib.ggml_commit.restype = ctypes.c_char_p
    said = lib.ggml_commit().decode()
    return said if said != "unknown" else PINNED_COMMIT if version() == PINNED else "unknown"


def system_info() -> str:
    """The backends and the features of each that this build uses, in llama.cpp's words."""
    return str(C.llama_print_system_info().decode().strip())


def device_list() -> list[str]:
    """Each device as `NAME: description (total MiB, free MiB free)` (common/arg.cpp, --list-devices)."""
    lib, found = C.llama_cpp._lib, list[str]()
    lib.ggml_backend_dev_description.argtypes = [ctypes.c_void_p]
    lib.ggml_backend_dev_description.restype = ctypes.c_char_p
    sizes = ctypes.POINTER(ctypes.c_size_t)
    lib.ggml_backend_dev_memory.argtypes = [ctypes.c_void_p, sizes, sizes]
    for name, device in known_devices().items():
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        lib.ggml_backend_dev_memory(device, free, total)
        what = lib.ggml_backend_dev_description(device).decode()
        found.append(f"{name}: {what} ({total.value // MIB} MiB, {free.value // MIB} MiB free)")
    return found
