"""`--version` and `--list-devices`: what is installed, in lines for a bug report."""

from __future__ import annotations

import platform

from spec_cli import __version__


def version_lines() -> list[str]:
    """spec-cli, what is under it, the machine. A library that cannot be loaded is a line too."""
    lines = [f"spec-cli {__version__}"]
    try:
        from spec_cli.llama import build
    except (ImportError, OSError, RuntimeError) as error:
        lines.append(f"llama-cpp-python cannot be loaded: {' '.join(str(error).split())}")
    else:
        lines += [f"llama-cpp-python {build.version()}", f"llama.cpp {build.commit()}", build.system_info()]
    return [*lines, f"Python {platform.python_version()}, {platform.platform()}"]


def device_lines() -> list[str]:
    """llama.cpp's list of devices, the CPU among them: -dev takes each name."""
    from spec_cli.llama.build import device_list

    return ["Available devices:", *(f"  {device}" for device in device_list())]
