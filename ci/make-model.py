#!/usr/bin/env python3
"""Writes a GGUF file of a Llama-shaped model with random weights, for `gllm-bench inspect`.

With the defaults it has 8 layers and about 500 MB: attention in F16, the feed-forward network in
Q8_0 and Q4_0, norms in F32. The same seed gives the same file. Needs the packages gguf and numpy.
"""

import argparse

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", help="where to write it")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--dim", type=int, default=2048, help="model width, a multiple of 256 (default: 2048)")
    p.add_argument("--vocab", type=int, default=None, help="tokens (default: 16 * dim)")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    if a.dim <= 0 or a.dim % 256 or a.layers < 1 or (a.vocab is not None and a.vocab < 1):
        p.error("--dim must be a multiple of 256, --layers and --vocab at least 1")
    return a


class Model:
    def __init__(self, file, seed):
        self.writer = gguf.GGUFWriter(file, "llama")
        self.random = np.random.default_rng(seed)

    def matrix(self, name, rows, cols, kind):
        """A rows x cols matrix, scaled as trained ones are: outputs keep the size of inputs."""
        w = self.random.standard_normal((rows, cols), dtype=np.float32) / np.float32(cols) ** 0.5
        if kind == Type.F16:
            self.writer.add_tensor(name, w.astype(np.float16))
        else:
            self.writer.add_tensor(name, gguf.quantize(w, kind), raw_dtype=kind)

    def norm(self, name, n):
        w = 1 + 0.1 * self.random.standard_normal(n, dtype=np.float32)
        self.writer.add_tensor(name, w.astype(np.float32))

    def finish(self):
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_tensors_to_file()
        self.writer.close()


def main():
    a = arguments()
    dim, hidden, vocab = a.dim, a.dim * 11 // 4, a.vocab or 16 * a.dim
    hidden -= hidden % 32
    head = 64
    kv = max(head, dim // 8)

    m = Model(a.file, a.seed)
    m.writer.add_name("random weights")
    m.writer.add_block_count(a.layers)
    m.writer.add_context_length(2048)
    m.writer.add_embedding_length(dim)
    m.writer.add_feed_forward_length(hidden)
    m.writer.add_head_count(dim // head)
    m.writer.add_head_count_kv(kv // head)
    m.writer.add_layer_norm_rms_eps(1e-5)
    m.writer.add_rope_freq_base(10000.0)
    m.writer.add_vocab_size(vocab)

    m.matrix("token_embd.weight", vocab, dim, Type.Q8_0)
    for i in range(a.layers):
        layer = f"blk.{i}."
        m.norm(layer + "attn_norm.weight", dim)
        m.matrix(layer + "attn_q.weight", dim, dim, Type.F16)
        m.matrix(layer + "attn_k.weight", kv, dim, Type.F16)
        m.matrix(layer + "attn_v.weight", kv, dim, Type.F16)
        m.matrix(layer + "attn_output.weight", dim, dim, Type.F16)
        m.norm(layer + "ffn_norm.weight", dim)
        m.matrix(layer + "ffn_gate.weight", hidden, dim, Type.Q8_0)
        m.matrix(layer + "ffn_up.weight", hidden, dim, Type.Q8_0)
        m.matrix(layer + "ffn_down.weight", dim, hidden, Type.Q4_0)
    m.norm("output_norm.weight", dim)
    m.matrix("output.weight", vocab, dim, Type.Q4_0)
    m.finish()


main()
