"""Trains the character model of tiny-llm on the project's own documentation, and quantises it.

Needs Python 3 and numpy:  python3 train.py [STEPS] [SEED]

A Llama: RMS norms, rotary embeddings of adjacent pairs, causal attention, SwiGLU, the output tied to the embedding.
Forward and backward passes are written out; Adam; weights live in f32. Writes q8_0.bin and q4_0.bin: f32 norms, then the
quantised tensors, all in the order of `tensors`.
"""
import pathlib
import re
import sys

import numpy as np

DIM, LAYERS, HEADS, FFN, CONTEXT = 64, 2, 4, 192, 128
# Newline, then the printable characters of ASCII.
VOCAB = "\n" + "".join(map(chr, range(32, 127)))
HEAD, EPS, BATCH = DIM // HEADS, 1e-5, 24
HERE = pathlib.Path(__file__).resolve().parent


def text():
    """What the project's documents and documentation comments say, without tables and code."""
    root = HERE.parent.parent
    parts = [p.read_text() for p in [root / "README.md", *sorted((root / "SPEC").glob("*.md"))]]
    parts = [re.sub(r"```.*?```", "", p, flags=re.S) for p in parts]
    for path in sorted((root / "core" / "src").rglob("*.rs")):
        parts.append("\n".join(m[1] for m in re.finditer(r"^ *//[/!] (.+)$", path.read_text(), re.M)))
    lines = [line for line in "\n".join(parts).split("\n") if not line.startswith("|")]
    kept = "\n".join(lines).replace("\t", " ")
    index = {c: i for i, c in enumerate(VOCAB)}
    return np.array([index[c] for c in kept if c in index])


def init(rng):
    w = {"embed": rng.normal(0, 0.06, (len(VOCAB), DIM)), "norm": np.ones(DIM)}
    for i in range(LAYERS):
        shapes = {"q": (DIM, DIM), "k": (DIM, DIM), "v": (DIM, DIM), "o": (DIM, DIM),
                  "gate": (FFN, DIM), "up": (FFN, DIM), "down": (DIM, FFN)}
        for name, shape in shapes.items():
            w[f"{i}.{name}"] = rng.normal(0, shape[1] ** -0.5, shape)
        w[f"{i}.norm1"] = np.ones(DIM)
        w[f"{i}.norm2"] = np.ones(DIM)
    return {k: v.astype(np.float32) for k, v in w.items()}


def rms(x, g):
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + EPS)
    return x * r * g, (x, r, g)


def rms_back(dy, saved):
    x, r, g = saved
    dxr = dy * g
    dg = (dy * x * r).reshape(-1, x.shape[-1]).sum(0)
    return r * dxr - x * r ** 3 * (dxr * x).mean(-1, keepdims=True), dg


ANGLES = np.arange(CONTEXT)[:, None] * 10000.0 ** (-np.arange(0, HEAD, 2) / HEAD)
COS, SIN = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)


def rope(x, sign=1):
    """x: batch, heads, tokens, head."""
    c, s = COS[: x.shape[2]], sign * SIN[: x.shape[2]]
    a, b = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = a * c - b * s, a * s + b * c
    return out


def heads(x):
    b, t, _ = x.shape
    return x.reshape(b, t, HEADS, HEAD).transpose(0, 2, 1, 3)


def merged(x):
    b, _, t, _ = x.shape
    return x.transpose(0, 2, 1, 3).reshape(b, t, DIM)


def product_back(dy, x, w):
    flat = dy.reshape(-1, dy.shape[-1])
    return dy @ w, flat.T @ x.reshape(-1, x.shape[-1])


def loss_and_gradients(w, tokens, targets):
    b, t = tokens.shape
    g, saved = {}, []
    x = w["embed"][tokens]
    mask = np.triu(np.full((t, t), -1e9, np.float32), 1)
    for i in range(LAYERS):
        at = lambda name: w[f"{i}.{name}"]
        h, n1 = rms(x, at("norm1"))
        q, k, v = (heads(h @ at(name).T) for name in "qkv")
        q, k = rope(q), rope(k)
        s = q @ k.transpose(0, 1, 3, 2) * HEAD ** -0.5 + mask
        p = np.exp(s - s.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        a = merged(p @ v)
        x = x + a @ at("o").T
        h2, n2 = rms(x, at("norm2"))
        gate, up = h2 @ at("gate").T, h2 @ at("up").T
        sig = 1 / (1 + np.exp(-gate))
        f = gate * sig * up
        x = x + f @ at("down").T
        saved.append((h, n1, q, k, v, p, a, h2, n2, gate, up, sig, f))
    y, n = rms(x, w["norm"])
    logits = y @ w["embed"].T
    e = np.exp(logits - logits.max(-1, keepdims=True))
    e /= e.sum(-1, keepdims=True)
    picked = np.take_along_axis(e, targets[..., None], -1)
    loss = -np.log(picked + 1e-9).mean()

    d = e
    np.put_along_axis(d, targets[..., None], picked - 1, -1)
    d /= b * t
    dy, g["embed"] = product_back(d, y, w["embed"])
    dx, g["norm"] = rms_back(dy, n)
    for i in reversed(range(LAYERS)):
        at = lambda name: w[f"{i}.{name}"]
        h, n1, q, k, v, p, a, h2, n2, gate, up, sig, f = saved[i]
        df, g[f"{i}.down"] = product_back(dx, f, at("down"))
        dgate = df * up * sig * (1 + gate * (1 - sig))
        d1, g[f"{i}.gate"] = product_back(dgate, h2, at("gate"))
        d2, g[f"{i}.up"] = product_back(df * gate * sig, h2, at("up"))
        dn, g[f"{i}.norm2"] = rms_back(d1 + d2, n2)
        dx = dx + dn
        da, g[f"{i}.o"] = product_back(dx, a, at("o"))
        da = heads(da)
        dp = da @ v.transpose(0, 1, 3, 2)
        dv = p.transpose(0, 1, 3, 2) @ da
        ds = p * (dp - (dp * p).sum(-1, keepdims=True)) * HEAD ** -0.5
        dq, dk = rope(ds @ k, -1), rope(ds.transpose(0, 1, 3, 2) @ q, -1)
        dh = 0
        for name, dz in (("q", dq), ("k", dk), ("v", dv)):
            part, g[f"{i}.{name}"] = product_back(merged(dz), h, at(name))
            dh = dh + part
        dn, g[f"{i}.norm1"] = rms_back(dh, n1)
        dx = dx + dn
    np.add.at(g["embed"], tokens, dx)
    return loss, g


def train(steps, seed):
    rng, data = np.random.default_rng(seed), text()
    w = init(rng)
    m = {k: np.zeros_like(v) for k, v in w.items()}
    v = {k: np.zeros_like(x) for k, x in w.items()}
    average = None
    for step in range(1, steps + 1):
        starts = rng.integers(0, len(data) - CONTEXT - 1, BATCH)
        rows = np.stack([data[s : s + CONTEXT + 1] for s in starts])
        loss, g = loss_and_gradients(w, rows[:, :-1], rows[:, 1:])
        norm = np.sqrt(sum(float((x * x).sum()) for x in g.values()))
        rate = 4e-3 * min(1, step / 100) * (0.5 + 0.5 * np.cos(np.pi * step / steps) + 0.01)
        for key in w:
            grad = g[key] / max(1.0, norm)
            m[key] = 0.9 * m[key] + 0.1 * grad
            v[key] = 0.98 * v[key] + 0.02 * grad * grad
            w[key] -= rate * (m[key] / (1 - 0.9 ** step)) / (np.sqrt(v[key] / (1 - 0.98 ** step)) + 1e-8)
            w[key] = w[key].astype(np.float32)
        average = loss if average is None else 0.98 * average + 0.02 * loss
        if step % 100 == 0:
            print(f"{step} of {steps}: {average:.3f} nats a character, {len(data)} characters", flush=True)
    return w


def q8_0(x):
    x = x.reshape(-1, 32)
    d = (np.abs(x).max(1) / 127).astype(np.float16)
    q = np.round(x / np.maximum(d.astype(np.float32), 1e-9)[:, None]).clip(-127, 127).astype(np.int8)
    return b"".join(a.tobytes() + b.tobytes() for a, b in zip(d, q))


def q4_0(x):
    x = x.reshape(-1, 32)
    extreme = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)
    d = (extreme / -8).astype(np.float16)
    scale = d.astype(np.float32)
    scale[scale == 0] = 1e-9
    q = np.round(x / scale + 8).clip(0, 15).astype(np.uint8)
    return b"".join(a.tobytes() + (b[:16] | b[16:] << 4).tobytes() for a, b in zip(d, q))


def tensors():
    norms = [f"{i}.{n}" for i in range(LAYERS) for n in ("norm1", "norm2")] + ["norm"]
    products = [f"{i}.{n}" for i in range(LAYERS) for n in ("q", "k", "v", "o", "gate", "up", "down")]
    return norms, ["embed"] + products


if __name__ == "__main__":
    steps, seed = (int(a) for a in (sys.argv[1:] + ["2500", "1"][len(sys.argv) - 1 :])[:2])
    weights = train(steps, seed)
    norms, products = tensors()
    for name, encode in (("q8_0", q8_0), ("q4_0", q4_0)):
        parts = [weights[n].astype("<f4").tobytes() for n in norms] + [encode(weights[n]) for n in products]
        (HERE / f"{name}.bin").write_bytes(b"".join(parts))
        print(name, sum(map(len, parts)), "bytes")
