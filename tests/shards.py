"""Model files as publishers split them."""

from __future__ import annotations

from pathlib import Path

import gguf


def split(source: Path, stem: Path, tensors: int, *, empty_first: bool = False) -> list[Path]:
    """STEM-00001-of-0000N.gguf and so on, of so many tensors each; empty_first: the first has the metadata only."""
    reader = gguf.GGUFReader(source)
    fields = {f.name: f for f in reader.fields.values() if not f.name.startswith("GGUF.")}
    arch = fields.pop("general.architecture").contents()
    w = gguf.GGUFWriter(stem.with_suffix(".gguf"), arch, split_max_tensors=tensors, small_first_shard=empty_first)
    for f in fields.values():
        w.add_key_value(f.name, f.contents(), f.types[0], f.types[-1] if len(f.types) > 1 else None)
    for t in reader.tensors:
        w.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return sorted(stem.parent.glob(f"{stem.name}-*-of-*.gguf"))
