#!/usr/bin/env python3
"""The exact reference of models in GGUF files, of each architecture that is supported.

ci/reference.py MODEL OUT TOKEN...     writes the logits at every position: little-endian f32, positions x vocabulary, or x labels
ci/reference.py MODEL score TOKEN...   prints the score of a model that ranks texts
ci/reference.py MODEL embed TOKEN...   prints the embedding of an encoder, pooled as the file says, of length 1

Weights are what their blocks decode to. Norms, softmax, angles and sums of products of the attention are computed in f64, products with
weights in f32. It is written for reading, not for speed. Needs the packages gguf and numpy.
"""

import math
import sys

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize


def norm(x, weight, eps):
    x = x.astype(np.float64)
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight).astype(np.float32)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def layer_norm(x, weight, bias, eps):
    x = x.astype(np.float64)
    x = x - x.mean(-1, keepdims=True)
    return (x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight + bias).astype(np.float32)


def gelu_erf(x):
    """The function itself, which encoders are trained with, and not its approximation."""
    return (0.5 * x * (1 + np.vectorize(math.erf)(x.astype(np.float64) / np.sqrt(2)))).astype(np.float32)


def clamped_swiglu(gate, up):
    gate = np.minimum(gate, 7)
    return gate / (1 + np.exp(-1.702 * gate)) * (np.clip(up, -7, 7) + 1)


def relu_squared(x):
    return np.maximum(x, 0) ** 2


def xielu(x, positive, negative):
    """The integral of a function that is steep above 0 and bounded below."""
    x = x.astype(np.float64)
    y = np.where(x > 0, positive * x * x, negative * (np.expm1(np.minimum(x, -1e-6)) - x))
    return (y + 0.5 * x).astype(np.float32)


def softcap(x, cap):
    return x if cap == 0 else cap * np.tanh(x / cap)


# Architectures whose pairs of rotated elements are neighbours; those of the others are in the two halves.
NEIGHBOURS = ("llama", "deci", "mistral3", "smollm3", "granite", "granitemoe", "granitehybrid", "minicpm", "chatglm", "glm4", "ernie4_5", "ernie4_5-moe", "bailingmoe", "deepseek", "internlm2", "cohere2", "command-r", "arcee", "deepseek2", "mistral4", "llama4", "baichuan", "xverse", "olmo")
# Architectures with experts of DeepSeek's kind, and how files number the function that makes scores of their routers' products if they do not say it: 1 is
# softmax, 2 is sigmoid.
DEEPSEEK = {"glm4moe": 2, "afmoe": 2, "exaone-moe": 2, "lfm2moe": 2, "nemotron_h_moe": 2, "ernie4_5-moe": 1, "bailingmoe2": 2, "dots1": 2, "bailingmoe": 1, "deepseek": 1, "minimax-m2": 2, "deepseek2": 1, "mistral4": 1, "llama4": 2}
# Of so many layers the last one sees all positions, and the others those of a window.
PERIODS = {"gemma3n": 5, "gemma4": 6, "gemma3": 6, "gemma-embedding": 6, "modern-bert": 3, "gemma2": 2, "gpt-oss": 2, "exaone4": 4, "exaone-moe": 4, "afmoe": 4, "olmo2": 4, "cohere2": 4}
# Encoders with norms in front of attention and networks, as decoders have them. Windows are half as long on each side.
ENCODERS = ("gemma-embedding", "modern-bert")
# Attention and the feed-forward network take the same numbers.
PARALLEL = ("cohere2", "command-r", "gptneox", "falcon", "phi2")
# Keys and values of all heads are products of one row.
LATENT = ("deepseek2", "mistral4", "minicpm3")
# Scores are not scaled, and values are normed.
UNSCALED = ("gemma3n", "gemma4")
# Activations of networks without a gate.
UNGATED = {"starcoder2": gelu, "phi2": gelu, "gpt2": gelu, "starcoder": gelu, "gptneox": gelu_erf, "falcon": gelu_erf, "nemotron": relu_squared, "jais2": relu_squared, "arcee": relu_squared, "nemotron_h": relu_squared, "nemotron_h_moe": relu_squared}


def sparse_mixer(products, chosen):
    """The shares of experts, each among those that are left and near it."""
    left, factor = products.copy(), np.empty(chosen.shape)
    rows = np.arange(len(products))
    for i, experts in enumerate(chosen.T):
        most = left[rows, experts][:, None]
        near = (most - left) / np.maximum(np.abs(products), most) <= 0.02
        factor[:, i] = 1 / np.where(near, np.exp(np.minimum(left - most, 0)), 0).sum(-1)
        left[rows, experts] = -np.inf
    return factor


class Model:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.meta = {k: f.contents() for k, f in reader.fields.items() if not k.startswith("tokenizer.ggml.")}
        self.tensors = {t.name: t for t in reader.tensors}
        self.decoded, self.keys_and_values = {}, {}
        self.architecture = self.meta["general.architecture"]
        self.gemma = self.architecture.startswith("gemma")
        self.gpt_oss = self.architecture == "gpt-oss"
        self.layers = self.get("block_count") - self.get("nextn_predict_layers", 0)
        self.heads, self.hidden = self.get("attention.head_count"), self.get("embedding_length")
        if isinstance(self.heads, list):
            # Layers without attention have none.
            self.heads = max(self.heads)
        self.kv_heads = self.get("attention.head_count_kv", self.heads)
        self.head_dim = self.get("attention.key_length", self.hidden // max(1, self.heads))
        # Files of Phi's mixtures have the key of the other norms.
        self.rms_norms = self.get("attention.layer_norm_rms_epsilon") is not None and self.architecture != "phimoe"
        self.eps = self.get("attention.layer_norm_rms_epsilon") or self.get("attention.layer_norm_epsilon")
        self.parallel = self.architecture in PARALLEL and self.get("use_parallel_residual", True)
        if self.architecture == "stablelm":
            self.parallel = "blk.0.ffn_norm.weight" not in self.tensors
        self.scale = self.get("attention.scale", 0) or (1.0 if self.architecture in UNSCALED else self.head_dim**-0.5)
        self.window = self.get("attention.sliding_window", 0)
        if self.architecture == "minicpm3":
            # What files do not say.
            usual = {"embedding_scale": 12.0, "residual_scale": 1.4 / self.layers**0.5, "logit_scale": self.hidden / 256}
            self.meta = {f"minicpm3.{key}": value for key, value in usual.items()} | self.meta
        self.residual_scale = self.get("residual_scale", 1.0)

    def get(self, key, default=None):
        return self.meta.get(f"{self.architecture}.{key}", default)

    def weight(self, name):
        """A tensor's elements, or None if the model lacks it."""
        if name not in self.tensors:
            return None
        if name not in self.decoded:
            t = self.tensors[name]
            shape = [int(n) for n in reversed(t.shape)]
            self.decoded[name] = dequantize(t.data, t.tensor_type).reshape(shape).astype(np.float32)
        return self.decoded[name]

    def heads_of(self, layer):
        """Heads of keys of a layer, and the elements of each of its heads."""
        count = self.kv_heads[layer] if isinstance(self.kv_heads, list) else self.kv_heads
        return count, self.get("attention.key_length_swa", self.head_dim) if self.is_local(layer) else self.head_dim

    def is_local(self, layer):
        """Whether a layer sees a window alone."""
        if self.architecture not in PERIODS:
            return self.architecture in ("phi3", "phimoe")
        period = self.get("attention.sliding_window_pattern", PERIODS[self.architecture])
        other = 0 if self.architecture == "modern-bert" else period - 1 if isinstance(period, int) else None
        by_period = period[layer] if isinstance(period, list) else period == 0 or layer % period != other
        return self.window > 0 and by_period

    def frequencies(self, local, positions):
        """Angles by which the pairs of a head turn from one position to the next, and the factor of sines and cosines."""
        dims = self.get("rope.dimension_count", self.head_dim)
        local = local and self.architecture in ("gemma3", "gemma3n", "gemma4", "olmo2") + ENCODERS  # The others rotate alike in all layers.
        base = self.get("rope.freq_base", 10000.0)
        if local:
            dims, base = self.get("rope.dimension_count_swa", dims), self.get("rope.freq_base_swa", 10000.0 if self.gemma or self.architecture in ENCODERS else base)
        i = np.arange(dims // 2)
        f = base ** (-2.0 * i / dims)
        if local:
            return f, 1.0
        factors = self.weight("rope_freqs.weight")
        if factors is None:
            long = positions > (self.get("rope.scaling.original_context_length", 0) or self.get("context_length", 0))
            factors = self.weight(f"rope_factors_{'long' if long else 'short'}.weight")
        if factors is not None:
            f = f / factors
        kind, factor = self.get("rope.scaling.type", "linear"), self.get("rope.scaling.factor", 1.0)
        attention = self.get("rope.scaling.attn_factor", 1.0)
        if kind != "yarn":
            return (f / factor if kind == "linear" else f), attention
        # YaRN: pairs that turn often within the context of the training keep their frequency.
        context = self.get("rope.scaling.original_context_length")

        def pair(turns):
            return dims * np.log(context / (turns * 2 * np.pi)) / (2 * np.log(base))

        low = max(0, np.floor(pair(self.get("rope.scaling.yarn_beta_fast", 32.0))))
        high = min(dims - 1, np.ceil(pair(self.get("rope.scaling.yarn_beta_slow", 1.0))))
        ramp = np.clip((i - low) / max(0.001, high - low), 0, 1)
        if self.architecture in LATENT:
            return f * (1 - ramp) + f / factor * ramp, attention
        attention *= (1 + 0.1 * np.log(factor)) / (1 + 0.1 * self.get("rope.scaling.yarn_log_multiplier", 0.0) * np.log(factor))
        return f * (1 - ramp) + f / factor * ramp, attention

    def rotate(self, x, local):
        """Rotates pairs of elements; x is positions x heads x head_dim."""
        f, factor = self.frequencies(local, len(x))
        angle = np.arange(len(x))[:, None, None] * f
        c, s, n = np.cos(angle) * factor, np.sin(angle) * factor, len(f)
        first, second = (slice(0, 2 * n, 2), slice(1, 2 * n, 2)) if self.architecture in NEIGHBOURS else (slice(0, n), slice(n, 2 * n))
        y = x.astype(np.float64)
        y[..., first] = x[..., first] * c - x[..., second] * s
        y[..., second] = x[..., second] * c + x[..., first] * s
        return y

    def slopes(self):
        """ALiBi: by how much a step of distance lowers the scores of each head. The paper's code: heads that are no power of two take the rest from
        every second one of twice as many."""

        def power_of_two(n):
            return [2 ** (-8 * (i + 1) / n) for i in range(n)]

        n = 2 ** math.floor(math.log2(self.heads))
        return np.array(power_of_two(n) + power_of_two(2 * n)[0::2][: self.heads - n])

    def encoder_layer(self, x, layer):
        """A layer of an encoder, whose tokens see the whole text."""

        def weight(role):
            return self.weight(f"blk.{layer}.{role}")

        def linear(x, role):
            bias = weight(f"{role}.bias")
            return x @ weight(f"{role}.weight").T + (0 if bias is None else bias)

        def normed(x, role):
            return layer_norm(x, weight(f"{role}.weight"), weight(f"{role}.bias"), self.eps)

        n, dim, inner = len(x), self.head_dim, self.get("feed_forward_length")
        if weight("attn_qkv.weight") is None:
            q, k, v = (linear(x, f"attn_{role}") for role in "qkv")
        else:
            q, k, v = np.split(linear(x, "attn_qkv"), [self.heads * dim, (self.heads + self.kv_heads) * dim], axis=-1)
        q, k, v = (y.reshape(n, -1, dim).astype(np.float64) for y in (q, k, v))
        if self.architecture == "nomic-bert":
            q, k = self.rotate(q, False), self.rotate(k, False)
        k, v = (np.repeat(y, self.heads // self.kv_heads, axis=1) for y in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) * self.scale
        if self.architecture == "jina-bert-v2":
            scores -= self.slopes()[:, None, None] * np.abs(np.arange(n)[:, None] - np.arange(n))
        seen = np.einsum("hij,jhd->ihd", softmax(scores), v).reshape(n, -1).astype(np.float32)
        x = normed(x + linear(seen, "attn_output"), "attn_output_norm")
        if self.architecture == "bert":
            y = gelu_erf(linear(x, "ffn_up"))
        elif self.architecture == "nomic-bert":
            y = silu(linear(x, "ffn_gate")) * linear(x, "ffn_up")
        elif weight("ffn_gate.weight") is None:
            both = linear(x, "ffn_up")
            y = gelu_erf(both[:, :inner]) * both[:, inner:]
        else:
            y = gelu_erf(linear(x, "ffn_gate")) * linear(x, "ffn_up")
        return normed(x + linear(y, "ffn_down"), "layer_output_norm")

    def embedding(self, tokens):
        """The row of a text."""
        x = self.rows(tokens) if self.architecture in ENCODERS else self.encoded(tokens)
        x = x.astype(np.float64)
        row = {1: x.mean(0), 2: x[0], 3: x[-1]}[self.get("pooling_type")]
        for name in ("dense_2.weight", "dense_3.weight"):
            row = row if self.weight(name) is None else self.weight(name) @ row
        return (row / np.sqrt((row * row).sum())).astype("<f4")

    def encoded(self, tokens):
        """The rows of the tokens of an encoder of BERT's kind."""
        x = self.weight("token_embd.weight")[np.asarray(tokens)]
        if self.weight("token_types.weight") is not None:
            x = x + self.weight("token_types.weight")[0]
        if self.weight("position_embd.weight") is not None:
            x = x + self.weight("position_embd.weight")[: len(tokens)]
        x = layer_norm(x, self.weight("token_embd_norm.weight"), self.weight("token_embd_norm.bias"), self.eps)
        for layer in range(self.layers):
            x = self.encoder_layer(x, layer)
        return x

    def linear_attention(self, x, layer):
        """The gated delta rule: each head of values keeps a matrix, to which each token adds."""

        def weight(role):
            return self.weight(f"blk.{layer}.{role}")

        # In f64, products with weights, too: norms of short heads make their errors larger.
        x = x.astype(np.float64)
        n, size = len(x), self.get("ssm.state_size")
        key_heads, value_heads = self.get("ssm.group_count"), self.get("ssm.time_step_rank")
        each = value_heads // key_heads
        mixed, kernel = x @ weight("attn_qkv.weight").T, weight("ssm_conv1d.weight").astype(np.float64)
        width = kernel.shape[1]
        before = np.concatenate([np.zeros((width - 1, mixed.shape[1])), mixed])
        convolved = silu(sum(before[i : i + n] * kernel[:, i] for i in range(width)))
        q, k, v = np.split(convolved, [key_heads * size, 2 * key_heads * size], -1)
        q, k = (y.reshape(n, key_heads, size) for y in (q, k))
        q, k = (y / np.sqrt((y * y).sum(-1, keepdims=True) + self.eps) for y in (q, k))
        if self.architecture == "qwen3next":
            # The values' heads of a head of keys follow each other, and so do their numbers of each kind.
            beta, alpha = np.split((x @ weight("ssm_ba.weight").T).reshape(n, key_heads, 2 * each), 2, -1)
            beta, alpha = beta.reshape(n, -1), alpha.reshape(n, -1)
            q, k = np.repeat(q, each, axis=1), np.repeat(k, each, axis=1)
        else:
            beta, alpha = (x @ weight(f"ssm_{role}.weight").T for role in ("beta", "alpha"))
            q, k = np.tile(q, (1, each, 1)), np.tile(k, (1, each, 1))
        beta = 1 / (1 + np.exp(-beta.astype(np.float64)))
        decay = np.exp(np.log1p(np.exp(alpha.astype(np.float64) + weight("ssm_dt.bias"))) * weight("ssm_a"))
        v = v.reshape(n, value_heads, size)
        state, y = np.zeros((value_heads, size, size)), np.empty_like(v)
        for t in range(n):
            state *= decay[t][:, None, None]
            difference = beta[t][:, None] * (v[t] - np.einsum("hji,hi->hj", state, k[t]))
            state += difference[:, :, None] * k[t][:, None, :]
            y[t] = np.einsum("hji,hi->hj", state, q[t]) / np.sqrt(size)
        y = norm(y, weight("ssm_norm.weight"), self.eps) * silu((x @ weight("attn_gate.weight").T).reshape(v.shape))
        return (y.reshape(n, -1) @ weight("ssm_out.weight").T).astype(np.float32)

    def state_space(self, x, layer):
        """Mamba-2: each head keeps a matrix, which forgets, and to which each token adds."""

        def weight(role):
            return self.weight(f"blk.{layer}.ssm_{role}").astype(np.float64)

        x = x.astype(np.float64)
        n, heads, groups = len(x), self.get("ssm.time_step_rank"), self.get("ssm.group_count")
        inner, keys = self.get("ssm.inner_size"), groups * self.get("ssm.state_size")
        gates, mixed, length = np.split(x @ weight("in.weight").T, [inner, 2 * inner + 2 * keys], -1)
        kernel = weight("conv1d.weight")
        width = kernel.shape[1]
        before = np.concatenate([np.zeros((width - 1, mixed.shape[1])), mixed])
        convolved = silu(weight("conv1d.bias") + sum(before[i : i + n] * kernel[:, i] for i in range(width)))
        v, k, q = np.split(convolved, [inner, inner + keys], -1)
        # Consecutive heads share a group's keys and queries.
        k, q = (np.repeat(y.reshape(n, groups, -1), heads // groups, axis=1) for y in (k, q))
        v = v.reshape(n, heads, -1)
        length = np.log1p(np.exp(length + weight("dt.bias")))
        decay = np.exp(length * weight("a").reshape(-1))
        state, y = np.zeros((heads, v.shape[-1], k.shape[-1])), np.empty_like(v)
        for t in range(n):
            state = decay[t][:, None, None] * state + (length[t][:, None] * v[t])[:, :, None] * k[t][:, None, :]
            y[t] = np.einsum("hji,hi->hj", state, q[t]) + weight("d").reshape(-1, 1) * v[t]
        y = y.reshape(n, inner) * silu(gates)
        if self.weight(f"blk.{layer}.ssm_norm.weight") is not None:
            y = norm(y.reshape(n, groups, -1), weight("norm.weight").reshape(groups, -1), self.eps).reshape(n, inner)
        return (y @ weight("out.weight").T).astype(np.float32)

    def short_convolution(self, x, layer):
        """Between two gates, a convolution of each channel with the tokens before."""
        gate, late_gate, u = np.split((x @ self.weight(f"blk.{layer}.shortconv.in_proj.weight").T).astype(np.float64), 3, -1)
        kernel = self.weight(f"blk.{layer}.shortconv.conv.weight")
        width = kernel.shape[1]
        before = np.concatenate([np.zeros((width - 1, u.shape[1])), gate * u])
        y = late_gate * sum(before[i : i + len(x)] * kernel[:, i] for i in range(width))
        return y.astype(np.float32) @ self.weight(f"blk.{layer}.shortconv.out_proj.weight").T

    def latent_attention(self, x, layer):
        """Keys and values of all heads are products of one row of each token, without the part of keys that is rotated, which all heads share."""

        def weight(role):
            return self.weight(f"blk.{layer}.attn_{role}.weight")

        n, rank, rotated = len(x), self.get("attention.kv_lora_rank"), self.get("rope.dimension_count")
        # Norms of MiniCPM 3 that are not of the residual stream have another epsilon, which no file says.
        dim, eps = self.get("attention.key_length_mla"), self.eps
        if self.architecture == "minicpm3":
            dim, eps = self.get("attention.key_length"), 1e-6
        if weight("q_a") is None:
            q = x @ weight("q").T
        else:
            q = norm(x @ weight("q_a").T, weight("q_a_norm"), eps) @ weight("q_b").T
        q = q.reshape(n, self.heads, dim).astype(np.float64)
        cached = x @ weight("kv_a_mqa").T
        row = norm(cached[:, :rank], weight("kv_a_norm"), eps).astype(np.float64)
        # A head's matrix of keys is stored transposed.
        if weight("kv_b") is None:
            k = np.einsum("jr,hrd->jhd", row, weight("k_b"))
            v = np.einsum("jr,hdr->jhd", row, weight("v_b"))
        else:
            k, v = np.split((row @ weight("kv_b").T.astype(np.float64)).reshape(n, self.heads, -1), [dim - rotated], -1)
        turned = np.repeat(self.rotate(cached[:, None, rank:], False), self.heads, axis=1)
        k = np.concatenate([k, turned], -1)
        q[..., -rotated:] = self.rotate(q[..., -rotated:], False)
        q *= self.temperatures(n)
        factor = self.get("rope.scaling.factor", 1.0) if self.get("rope.scaling.type") == "yarn" else 1.0
        scale = self.get("rope.scaling.attn_factor", 1.0) * (1 + self.get("rope.scaling.yarn_log_multiplier", 0.0) * np.log(factor))
        scores = np.einsum("ihd,jhd->hij", q, k) * scale**2 / np.sqrt(dim)
        share = softmax(np.where(np.arange(n)[:, None] < np.arange(n), -np.inf, scores))
        seen = np.einsum("hij,jhd->ihd", share, v).reshape(n, -1).astype(np.float32)
        return seen @ weight("output").T

    def temperatures(self, n):
        """What the queries of each position are multiplied by: 1 up to the length of the first training, or another one."""
        usual = self.get("rope.scaling.original_context_length", 0) or self.get("context_length")
        stretches = np.arange(n) // (self.get("attention.temperature_length", 0) or usual)
        return (1 + self.get("attention.temperature_scale", 0.0) * np.log(1 + stretches))[:, None, None]

    def normed(self, x, name):
        """A norm, if the model has it."""
        weight, bias = self.weight(f"{name}.weight"), self.weight(f"{name}.bias")
        if weight is None and self.architecture == "falcon-h1":
            # That of networks has no ending.
            weight = self.weight(name)
        if weight is None and self.architecture == "olmo" and "post" not in name:
            return layer_norm(x, 1, 0, self.eps)
        if weight is None:
            return x
        return norm(x, weight, self.eps) if self.rms_norms else layer_norm(x, weight, 0 if bias is None else bias, self.eps)

    def attention(self, x, layer):
        if self.weight(f"blk.{layer}.ssm_in.weight") is not None:
            y = self.state_space(x, layer)
            # Of Falcon-H1 both take the same.
            return y + self.softmax_attention(x, layer) if self.architecture == "falcon-h1" else y
        if self.weight(f"blk.{layer}.ssm_out.weight") is not None:
            return self.linear_attention(x, layer)
        if self.weight(f"blk.{layer}.shortconv.conv.weight") is not None:
            return self.short_convolution(x, layer)
        if self.architecture in LATENT:
            return self.latent_attention(x, layer)
        return self.softmax_attention(x, layer)

    def softmax_attention(self, x, layer):
        n, local = len(x), self.is_local(layer)
        # Baichuan 13B.
        by_distance = self.architecture == "baichuan" and self.layers == 40
        kv_heads, head_dim = self.heads_of(layer)
        rows = [self.heads * head_dim, kv_heads * head_dim]

        def part(role, kind):
            """Weights of queries, keys or values, or their biases: in a tensor of its own, or in that of all three."""
            whole = self.weight(f"blk.{layer}.attn_qkv.{kind}")
            if whole is None:
                return self.weight(f"blk.{layer}.{role}.{kind}")
            return dict(zip(("attn_q", "attn_k", "attn_v"), np.split(whole, [rows[0], rows[0] + rows[1]])))[role]

        def linear(role, heads):
            y, bias = x @ part(role, "weight").T, part(role, "bias")
            most = self.get("attention.clamp_kqv", np.inf)
            return np.clip(y if bias is None else y + bias, -most, most).reshape(n, heads, -1)

        def normed(y, role):
            """Norms of heads, each of which may have weights of its own, or of all heads together, as long as the weight is."""
            weight = self.weight(f"blk.{layer}.{role}.weight")
            if weight is None:
                return y
            y, shape = (y, y.shape) if weight.ndim > 1 else (y.reshape(n, -1, len(weight)), y.shape)
            return (norm(y, weight, self.eps) if self.rms_norms else layer_norm(y, weight, 0, self.eps)).reshape(shape)

        def rotated(y):
            # Of SmolLM 3, every fourth layer is without positions; of others, those that see all of them.
            if self.architecture in ("nemotron_h", "nemotron_h_moe", "gpt2", "starcoder") or self.architecture.startswith("granite") and not self.get("rope.scaling.finetuned", True):
                return y
            if by_distance:
                return y
            still = layer % 4 == 3 if self.architecture in ("smollm3", "llama4") else self.architecture in ("exaone4", "exaone-moe", "afmoe", "cohere2") and self.window > 0 and not local
            return y if still else self.rotate(y, local)

        q = linear("attn_q", self.heads)
        q, gate = q[..., :head_dim], q[..., head_dim:]
        if self.architecture == "afmoe":
            gate = linear("attn_gate", self.heads)

        def turned(y, role):
            if self.architecture == "llama4":
                # What is rotated has a norm without weights behind that, but in models with 128 experts.
                return y if layer % 4 == 3 else norm(rotated(y), 1, self.eps) if self.get("expert_count") != 128 else rotated(y)
            return normed(rotated(y), role) if self.architecture.startswith("hunyuan") else rotated(normed(y, role))

        q = turned(q, "attn_q_norm") * self.temperatures(n)
        own = self.layers - self.get("attention.shared_kv_layers", 0)
        if layer < own:
            k = linear("attn_k", kv_heads)
            # What becomes keys may be values, too.
            v = k if part("attn_v", "weight") is None else linear("attn_v", kv_heads)
            v = (norm(v, 1, self.eps) if self.architecture in UNSCALED else v).astype(np.float64)
            self.keys_and_values[layer] = k, v = turned(k, "attn_k_norm"), v
        else:
            # Those of the last layer that has some, and the same window.
            k, v = self.keys_and_values[max(other for other in range(own) if self.is_local(other) == local)]
        # Consecutive heads of queries share a head of keys and values.
        k, v = (np.repeat(t, self.heads // kv_heads, axis=1) for t in (k, v))
        scores = softcap(np.einsum("ihd,jhd->hij", q, k) * self.scale, self.get("attn_logit_softcapping", 0))
        distance = np.arange(n)[:, None] - np.arange(n)
        if by_distance:
            scores = scores - self.slopes()[:, None, None] * distance
        window = self.window if local else 0
        hidden = (distance < 0) | (distance >= window if window else False)
        if self.architecture in ENCODERS:
            hidden = np.abs(distance) > (window // 2 if window else n)
        scores = np.where(hidden, -np.inf, scores)
        sinks = self.weight(f"blk.{layer}.attn_sinks.weight")
        if sinks is not None:
            # A position more, which has no value.
            sinks = np.broadcast_to(sinks[:, None, None], (self.heads, n, 1))
            share = softmax(np.concatenate([scores, sinks], -1))[..., :-1]
        else:
            share = softmax(scores)
        seen = np.einsum("hij,jhd->ihd", share, v)
        if gate.size:
            seen = seen / (1 + np.exp(-gate.astype(np.float64)))
        seen = seen.reshape(n, -1).astype(np.float32)
        bias = self.weight(f"blk.{layer}.attn_output.bias")
        y = seen @ self.weight(f"blk.{layer}.attn_output.weight").T
        return y if bias is None else y + bias

    def feed_forward(self, x, layer, stream):
        """The network of a layer, of `x`, the norm of the residual stream."""
        def weight(role):
            return self.weight(f"blk.{layer}.ffn_{role}.weight")

        def gated(gate, up):
            if self.architecture == "gemma3n":
                gate = self.sparse(gate, layer)
            if self.gpt_oss:
                return clamped_swiglu(gate, up)
            if self.architecture == "modern-bert" and self.get("hidden_activation") != "silu":
                return gelu_erf(gate) * up
            return (gelu if self.gemma else silu)(gate) * up

        ungated = UNGATED.get(self.architecture)
        if self.architecture == "apertus":
            softplus = [np.log1p(np.exp(self.meta[f"xielu.alpha_{kind}"][layer])) for kind in "pn"]
            ungated = lambda x: xielu(x, softplus[0], 0.5 + softplus[1])

        def network(x, matrices, biases=(0, 0, 0)):
            gate, up, down = (lambda x, w=w, b=b: x @ w.T + b for w, b in zip(matrices, biases))
            if ungated:
                return down(ungated(up(x)))
            return down(gated(gate(x), up(x)))

        def named(end):
            return [weight(f"{role}{end}") for role in ("gate", "up", "down")]

        if weight("gate_inp") is None:
            gate, up, down = named("")
            if ungated:
                biases = [self.weight(f"blk.{layer}.ffn_{role}.bias") for role in ("up", "down")]
                add_up, add_down = (0 if bias is None else bias for bias in biases)
                return ungated(x @ up.T + add_up) @ down.T + add_down
            if gate is None:
                gate, up = np.split(up, 2)
            return network(x, (gate, up, down))
        experts_norm = self.weight(f"blk.{layer}.pre_ffw_norm_2.weight")
        if experts_norm is None:
            routed = x @ weight("gate_inp").T
        else:
            # Of Gemma 4 each part has norms of its own.
            beside = self.normed(network(x, named("")), f"blk.{layer}.post_ffw_norm_1")
            routed = norm(stream, self.weight(f"blk.{layer}.ffn_gate_inp.scale"), self.eps) / np.float32(self.hidden**0.5) @ weight("gate_inp").T
            x = norm(stream, experts_norm, self.eps)
        bias = self.weight(f"blk.{layer}.ffn_gate_inp.bias")
        routed = (routed if bias is None else routed + bias).astype(np.float64)
        biased = self.weight(f"blk.{layer}.exp_probs_b.bias") is not None
        kind = self.get("expert_gating_func", 0) or (2 if self.architecture in LATENT and biased else DEEPSEEK.get(self.architecture, 1))
        score = 1 / (1 + np.exp(-routed)) if kind == 2 else softmax(routed)
        bias = self.weight(f"blk.{layer}.exp_probs_b.bias")
        merit = score if bias is None else score + bias
        groups = self.get("expert_group_count", 1)
        if groups > 1:
            own = merit.reshape(len(x), groups, -1)
            best = np.sort(own, axis=-1)[..., -self.get("expert_group_counted", 2) :].sum(-1)
            order = np.argsort(-best, axis=-1, kind="stable")
            np.put_along_axis(own, order[:, self.get("expert_group_used_count") :, None], -np.inf, 1)
            merit = own.reshape(len(x), -1)
        chosen = np.argsort(-merit, axis=-1, kind="stable")[:, : self.get("expert_used_count")]
        factor = np.take_along_axis(score, chosen, -1)
        if self.architecture == "phimoe":
            factor = sparse_mixer(routed, chosen)
        usual = self.architecture in ("ernie4_5-moe", "minimax-m2", "lfm2moe") or self.architecture not in ("qwen2moe", "olmoe", "phimoe", *DEEPSEEK)
        if kind == 3 or self.get("expert_weights_norm", usual):
            factor /= factor.sum(-1, keepdims=True) + 1e-20
        factor *= self.get("expert_weights_scale", 0) or 1
        own_factors = self.weight(f"blk.{layer}.ffn_down_exps.scale")
        if own_factors is not None:
            factor *= own_factors[chosen]
        y = np.zeros_like(x)
        if weight("gate_inp_shexp") is None:
            y += 0 if weight("up_shexp") is None else network(x, named("_shexp"))
        else:
            gate = 1 / (1 + np.exp(-(x @ weight("gate_inp_shexp").astype(np.float64))))
            y += gate[:, None].astype(np.float32) * network(x, named("_shexp"))
        biases = [self.weight(f"blk.{layer}.ffn_{role}_exps.bias") for role in ("gate", "up", "down")]
        matrices = named("_exps")
        if weight("gate_up_exps") is not None:
            matrices[:2] = np.split(weight("gate_up_exps"), 2, axis=1)
        for row, experts in enumerate(chosen):
            for e, f in zip(experts, factor[row]):
                own = [0 if b is None else b[e] for b in biases]
                # Of Llama 4 scores multiply what experts take.
                before, behind = (f, 1) if self.architecture == "llama4" else (1, f)
                y[row] += np.float32(behind) * network(np.float32(before) * x[row], [None if w is None else w[e] for w in matrices], own)
        return y if experts_norm is None else beside + self.normed(y, f"blk.{layer}.post_ffw_norm_2")

    def rows(self, tokens):
        """What the output matrix multiplies."""
        embedding = self.weight("token_embd.weight")
        x = embedding[np.asarray(tokens)]
        x = x * np.float32(self.get("embedding_scale", self.hidden**0.5 if self.gemma or self.architecture == "afmoe" else 1))
        if self.weight("position_embd.weight") is not None:
            x = x + self.weight("position_embd.weight")[: len(tokens)]
        if self.architecture == "modern-bert":
            x = self.normed(x, "token_embd_norm")
        per_layer = self.get("embedding_length_per_layer_input", 0)
        if per_layer:
            shape = (len(x), self.layers, per_layer)
            products = (x @ self.weight("per_layer_model_proj.weight").T / np.float32(self.hidden**0.5)).reshape(shape)
            own = self.weight("per_layer_token_embd.weight")[np.asarray(tokens)].reshape(shape) * np.float32(per_layer**0.5)
            inputs = (self.normed(products, "per_layer_proj_norm") + own) / np.float32(2**0.5)
        if self.architecture == "gemma3n":
            return self.normed(self.joined(x.astype(np.float64), inputs), "output_norm")
        for layer in range(self.layers):

            def normed(y, role):
                return self.normed(y, f"blk.{layer}.{role}")

            if self.parallel:
                own = "attn_norm" if self.weight(f"blk.{layer}.ffn_norm.weight") is None else "ffn_norm"
                # Where there is a second norm of attention, the first one is the network's.
                of_attention = "attn_norm" if self.weight(f"blk.{layer}.attn_norm_2.weight") is None else "attn_norm_2"
                x = x + self.attention(normed(x, of_attention), layer) + self.feed_forward(normed(x, own), layer, x)
                continue
            if self.architecture in ("nemotron_h", "nemotron_h_moe"):
                # Networks are layers of their own.
                is_network = self.weight(f"blk.{layer}.ffn_up.weight") is not None or self.weight(f"blk.{layer}.ffn_gate_inp.weight") is not None
                y = normed(x, "attn_norm")
                x = x + (self.feed_forward(y, layer, x) if is_network else self.attention(y, layer))
                continue
            # Some files name the norm in front of the feed-forward network by what is before it.
            by_attention = self.architecture in ("gpt-oss", "seed_oss", "glm4moe", "qwen35", "qwen35moe", "qwen3next")
            behind, before = ("", "post_attention_norm") if by_attention else ("post_attention_norm", "ffn_norm")
            factor = np.float32(self.residual_scale)
            if self.architecture != "deci" or self.weight(f"blk.{layer}.attn_norm.weight") is not None:
                x = x + factor * normed(self.attention(normed(x, "attn_norm"), layer), behind)
            if self.architecture == "mamba2" or self.weight(f"blk.{layer}.ffn_norm.weight") is None and self.architecture == "deci":
                continue
            x = x + factor * normed(self.feed_forward(normed(x, before), layer, x), "post_ffw_norm")
            if per_layer:
                y = gelu(x @ self.weight(f"blk.{layer}.inp_gate.weight").T) * inputs[:, layer]
                x = x + normed(y @ self.weight(f"blk.{layer}.proj.weight").T, "post_norm")
            scale = self.weight(f"blk.{layer}.layer_output_scale.weight")
            x = x if scale is None else x * scale
        return self.normed(x, "token_embd_norm" if self.architecture.startswith("lfm2") else "output_norm")

    def sparse(self, gates, layer):
        """Of Gemma 3n, gates of the first layers count where they are so many standard deviations above their mean."""
        usual = [1.6448536] * 10 + [-np.inf] * self.layers
        least = self.get("activation_sparsity_scale", usual)[layer]
        if least == -np.inf:
            return gates
        gates = gates.astype(np.float64)
        cut = gates.mean(-1, keepdims=True) + least * gates.std(-1, keepdims=True)
        return np.maximum(gates - cut, 0).astype(np.float32)

    def joined(self, x, inputs):
        """The residual stream of Gemma 3n: layers compute the first of several streams, predict all of them, and correct the others."""

        def length(y):
            return np.sqrt((y * y).mean(-1, keepdims=True))

        def as_long_as(x, y):
            return y * length(x) / np.maximum(length(y), np.sqrt(1e-5))

        streams = np.stack([x] + [as_long_as(x, x @ w.T) for w in self.weight("altup_proj.weight")])
        count = len(streams)
        for layer in range(self.layers):

            def weight(role):
                return self.weight(f"blk.{layer}.{role}.weight")

            def normed(y, role):
                return self.normed(y, f"blk.{layer}.{role}").astype(np.float64)

            def numbers(y):
                return np.tanh(normed(y, "altup_router_norm") / self.hidden @ weight("altup_router").T)

            factors = (numbers(streams[0]) @ weight("altup_predict_coef").T).reshape(-1, count, count)
            predicted = streams + np.einsum("tij,jtd->itd", factors, streams)
            h = normed(predicted[0], "attn_norm")
            y = predicted[0] + normed(self.attention(h.astype(np.float32), layer), "post_attention_norm")
            y = (y + h + normed(h @ weight("laurel_l").T @ weight("laurel_r").T, "laurel_post_norm")) / np.sqrt(2)
            y = y + normed(self.feed_forward(normed(y, "ffn_norm").astype(np.float32), layer, y), "post_ffw_norm")
            factors = 1 + numbers(y) @ weight("altup_correct_coef").T
            streams = predicted + factors.T[..., None] * (y - predicted[0])
            e = gelu((streams[0] * weight("altup_correct_scale")) @ weight("inp_gate").T) * inputs[:, layer]
            streams[1:] += normed(e @ weight("proj").T, "post_norm")
        others = [as_long_as(streams[0], y @ w.T) for y, w in zip(streams[1:], self.weight("altup_unembd_proj.weight"))]
        return np.mean([streams[0], *others], 0)

    def logits(self, tokens):
        scale, bias = self.get("logit_scale", 1.0), self.weight("output.bias")
        y = (self.rows(tokens) @ self.output().T + (0 if bias is None else bias)) * (scale if self.architecture in ("cohere2", "command-r") else 1 / scale)
        return softcap(y, self.get("final_logit_softcapping", 30.0 if self.architecture == "gemma3n" else 0)).astype("<f4")

    def output(self):
        """The last matrix: a row for each token, or, of models that rank texts, for each label."""
        if self.get("pooling_type") == 4:
            return self.weight("cls.output.weight")
        output = self.weight("output.weight")
        return self.weight("token_embd.weight") if output is None else output

    def score(self, tokens):
        """The probability of the first label behind a text; a single label stands against 0."""
        logits = self.logits(tokens)[-1].astype(np.float64)
        bias = self.weight("cls.output.bias")
        logits = logits if bias is None else logits + bias
        return softmax(logits if len(logits) > 1 else np.append(logits, 0))[0]


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    model, tokens = Model(sys.argv[1]), [int(t) for t in sys.argv[3:]]
    if sys.argv[2] == "score":
        print(model.score(tokens))
    elif sys.argv[2] == "embed":
        print(*model.embedding(tokens))
    else:
        model.logits(tokens).tofile(sys.argv[2])
