#!/usr/bin/env python3
"""Writes small.gguf and, for each *.gguf here, what the `gguf` package reads in it (*.txt).

Run in this folder after `pip install gguf`; the results are committed.
"""

from pathlib import Path

import gguf
import numpy as np

HERE = Path(__file__).parent


def small(path):
    """One value of every metadata type, arrays of them, five tensors."""
    w = gguf.GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_float32("t.f32", 0.5)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "größe")
    w.add_uint64("t.u64", 1 << 63)
    w.add_int64("t.i64", -(1 << 62))
    w.add_float64("t.f64", -0.1)
    w.add_array("t.numbers", [1, -2, 3])
    w.add_array("t.strings", ["a", "", "bc"])
    w.add_array("t.bools", [True, False])
    w.add_array("t.nested", [[1, 2], [3, 4]])
    ramp = np.arange(64, dtype=np.float32)
    w.add_tensor("f32", ramp.reshape(2, 4, 8))
    w.add_tensor("f16", ramp.astype(np.float16).reshape(2, 32))
    w.add_tensor("i8", ramp.astype(np.int8))
    for kind in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.BF16):
        data = gguf.quants.quantize(ramp.reshape(2, 32), kind)
        w.add_tensor(kind.name.lower(), data, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def expect(path):
    """`name type-number dims,.. file-offset bytes` for every tensor."""
    lines = []
    for t in gguf.GGUFReader(path).tensors:
        dims = ",".join(str(d) for d in t.shape)
        lines.append(f"{t.name} {int(t.tensor_type)} {dims} {t.data_offset} {t.n_bytes}\n")
    path.with_suffix(".txt").write_text("".join(lines))


small(HERE / "small.gguf")
for file in HERE.glob("*.gguf"):
    expect(file)
