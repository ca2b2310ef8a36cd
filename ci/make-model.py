#!/usr/bin/env python3
"""Writes GGUF models with random weights, of any architecture that is supported.

ci/make-model.py FILE [options]   one model. With the defaults it is a llama with 8 layers and about 500 MB. For measurements of speed,
                                  e.g. --layers 16 --weights q4_k_m has 0.8 billion weights, --layers 24 has 1.2 billion.
ci/make-model.py --tests FOLDER   small ones of every kind, NAME.gguf, each with NAME.json: tokens, and the exact reference's logits; of models
                                  that rank texts the score, too, and of encoders the embedding alone

The same seed gives the same file. Needs the packages gguf and numpy.
"""

import argparse
import json
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf import TokenType

from reference import ENCODERS as WITH_NORMS_IN_FRONT
from reference import UNGATED, Model

NO_GATE = (*UNGATED, "apertus")

GEMMA4 = dict(
    architecture="gemma4",
    layers=7,
    head_dim=64,
    tied=True,
    kv_heads=1,
    local=(2, 32),
    keys={"attention.sliding_window": 8, "final_logit_softcapping": 3.0},
)

# What tests read: names, and what is special about them.
TESTS = {
    "tiny-llama": dict(architecture="llama"),
    "tiny-llama-tied": dict(architecture="llama", tied=True),
    "tiny-llama-factors": dict(architecture="llama", factors=True),
    "tiny-llama-linear": dict(architecture="llama", keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "tiny-llama-yarn": dict(
        architecture="llama",
        keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64},
    ),
    # As in Mistral Nemo, heads are not width / heads wide.
    "tiny-mistral": dict(architecture="llama", head_dim=32),
    "tiny-qwen2": dict(architecture="qwen2"),
    "tiny-qwen3": dict(architecture="qwen3", head_dim=32),
    "tiny-mixtral": dict(architecture="llama", experts=(8, 2, 128)),
    "tiny-qwen2moe": dict(architecture="qwen2moe", experts=(8, 3, 64)),
    "tiny-qwen3moe": dict(architecture="qwen3moe", head_dim=32, experts=(16, 4, 64)),
    "tiny-gemma3": dict(architecture="gemma3", layers=7, head_dim=32, tied=True, keys={"attention.sliding_window": 8}),
    # Ranks texts: its logits are those of two labels.
    "tiny-qwen3-ranker": dict(architecture="qwen3", head_dim=32, labels=["yes", "no"]),
    "tiny-gpt-oss": dict(
        architecture="gpt-oss",
        layers=4,
        weights="mxfp4",
        experts=(8, 4, 64),
        keys={
            "attention.sliding_window": 8,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 64,
        },
    ),
    # As in the 31B: layers without a window have fewer and larger heads, a part of which is rotated, and keys for values.
    "tiny-gemma4": GEMMA4,
    # As in the 26B-A4B: beside the network, experts with norms of their own.
    "tiny-gemma4-moe": GEMMA4 | dict(layers=4, experts=(8, 3, 64)),
    # As in the E2B: embeddings for each layer, and layers without keys of their own, whose networks are wider.
    "tiny-gemma4-e": GEMMA4 | dict(per_layer=(32, 4)),
    "tiny-gemma": dict(architecture="gemma", tied=True),
    "tiny-gemma2": dict(
        architecture="gemma2",
        tied=True,
        keys={"attention.sliding_window": 8, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    # Texts of the tests are longer than those of the first training.
    "tiny-phi3": dict(
        architecture="phi3",
        heads=2,
        kv_heads=1,
        head_dim=32,
        part=0.75,
        longrope=True,
        keys={"attention.sliding_window": 20, "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.19},
    ),
    "tiny-phi3-short": dict(
        architecture="phi3",
        longrope=True,
        keys={"rope.scaling.type": "longrope", "rope.scaling.original_context_length": 256, "rope.scaling.attn_factor": 1.19},
    ),
    "tiny-smollm3": dict(architecture="smollm3", layers=5, tied=True),
    "tiny-granite": dict(
        architecture="granite",
        tied=True,
        keys={"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.0625, "logit_scale": 8.0},
    ),
    "tiny-granitemoe": dict(
        architecture="granitemoe",
        experts=(8, 2, 128),
        keys={"embedding_scale": 12.0, "residual_scale": 0.22, "attention.scale": 0.0625, "logit_scale": 8.0},
    ),
    "tiny-mistral3": dict(
        architecture="mistral3",
        keys={
            "attention.temperature_scale": 0.1,
            "attention.temperature_length": 8,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 16.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_log_multiplier": 1.0,
        },
    ),
    "tiny-minicpm": dict(architecture="minicpm", keys={"embedding_scale": 12.0, "residual_scale": 0.8, "logit_scale": 4.0}),
    "tiny-chatglm": dict(architecture="chatglm", heads=2, kv_heads=1, head_dim=32, part=0.5),
    "tiny-glm4": dict(architecture="glm4", head_dim=32, part=0.5),
    "tiny-ernie4_5": dict(architecture="ernie4_5", tied=True),
    "tiny-seed_oss": dict(architecture="seed_oss", head_dim=32),
    "tiny-internlm2": dict(architecture="internlm2"),
    "tiny-exaone": dict(architecture="exaone", factors=True),
    "tiny-exaone4": dict(architecture="exaone4", layers=5, head_dim=32, tied=True, keys={"attention.sliding_window": 8}),
    "tiny-exaone4-full": dict(architecture="exaone4", head_dim=32),
    "tiny-olmo2": dict(architecture="olmo2"),
    # OLMo 3: windows, and scaled frequencies where there is none.
    "tiny-olmo3": dict(
        architecture="olmo2",
        layers=5,
        keys={
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": [True, False, True, True, False],
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 64,
        },
    ),
    "tiny-olmoe": dict(architecture="olmoe", kv_heads=4, experts=(8, 3, 128)),
    "tiny-cohere2": dict(architecture="cohere2", layers=5, tied=True, keys={"attention.sliding_window": 8, "logit_scale": 0.25}),
    "tiny-command-r": dict(architecture="command-r", tied=True, keys={"logit_scale": 0.0625}),
    # Command R+ and StableLM 2 12B: each head has a norm of its own.
    "tiny-command-r-plus": dict(architecture="command-r", tied=True, each=True, keys={"logit_scale": 0.0625}),
    "tiny-stablelm-12b": dict(architecture="stablelm", heads=2, kv_heads=1, head_dim=32, part=0.25, each=True),
    "tiny-hunyuan-dense": dict(architecture="hunyuan-dense", head_dim=32, tied=True),
    "tiny-hunyuan-moe": dict(architecture="hunyuan-moe", experts=(8, 3, 128), keys={"expert_shared_feed_forward_length": 64}),
    "tiny-starcoder2": dict(architecture="starcoder2"),
    "tiny-stablelm": dict(architecture="stablelm", heads=2, kv_heads=1, head_dim=32, part=0.25),
    "tiny-nemotron": dict(architecture="nemotron", heads=2, kv_heads=1, head_dim=32, part=0.5),
    "tiny-arcee": dict(architecture="arcee", factors=True),
    "tiny-gptneox": dict(architecture="gptneox", kv_heads=4, part=0.25, keys={"use_parallel_residual": True}),
    "tiny-gptneox-sums": dict(architecture="gptneox", kv_heads=4, keys={"use_parallel_residual": False}),
    "tiny-falcon": dict(architecture="falcon", kv_heads=1),
    # Falcon 40B: a norm for attention and another one for the network.
    "tiny-falcon-40b": dict(architecture="falcon", two_norms=True),
    "tiny-phi2": dict(architecture="phi2", kv_heads=4, part=0.5),
    "tiny-jais2": dict(architecture="jais2"),
    "tiny-gpt2": dict(architecture="gpt2", kv_heads=4, tied=True),
    "tiny-starcoder": dict(architecture="starcoder", kv_heads=1),
    "tiny-deepseek": dict(
        architecture="deepseek",
        experts=(8, 3, 64),
        keys={"leading_dense_block_count": 1, "expert_shared_count": 2, "expert_weights_scale": 1.0},
    ),
    "tiny-qwen2vl": dict(architecture="qwen2vl", keys={"rope.dimension_sections": [2, 3, 3, 0]}),
    "tiny-qwen3vl": dict(architecture="qwen3vl", head_dim=32, keys={"rope.dimension_sections": [6, 5, 5, 0]}),
    "tiny-qwen3vlmoe": dict(architecture="qwen3vlmoe", head_dim=32, experts=(8, 2, 64), keys={"rope.dimension_sections": [6, 5, 5, 0]}),
    # Of three layers two have linear attention, the last one among them.
    "tiny-qwen35": dict(architecture="qwen35", layers=5, head_dim=32, part=0.5, linear=(2, 4, 16), keys={"full_attention_interval": 3}),
    "tiny-qwen35moe": dict(architecture="qwen35moe", layers=4, head_dim=32, part=0.25, linear=(2, 6, 32), experts=(8, 3, 64)),
    "tiny-qwen3next": dict(
        architecture="qwen3next", layers=4, head_dim=32, part=0.25, linear=(2, 4, 32), experts=(8, 3, 64), keys={"full_attention_interval": 2}
    ),
    # Of five layers the second and the fourth have attention, the others a convolution.
    "tiny-lfm2": dict(architecture="lfm2", layers=5, tied=True, attention=(1, 3), keys={"shortconv.l_cache": 3}),
    "tiny-lfm2moe": dict(
        architecture="lfm2moe",
        layers=4,
        tied=True,
        attention=(2,),
        experts=(8, 3, 64),
        keys={"shortconv.l_cache": 4, "leading_dense_block_count": 2, "expert_gating_func": 2},
    ),
    # Of four layers the third has attention; heads of values are shorter than those of keys, of which there are one or two.
    "tiny-granitehybrid": dict(
        architecture="granitehybrid",
        layers=4,
        tied=True,
        attention=(2,),
        space=(1, 8, 32, 16),
        experts=(8, 2, 128),
        keys={
            "expert_shared_feed_forward_length": 64,
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "attention.scale": 0.0625,
            "logit_scale": 8.0,
            "rope.scaling.finetuned": False,
        },
    ),
    "tiny-granitehybrid-dense": dict(
        architecture="granitehybrid", layers=4, tied=True, attention=(1,), space=(2, 8, 64, 16), keys={"embedding_scale": 12.0, "logit_scale": 8.0}
    ),
    "tiny-nemotron_h": dict(architecture="nemotron_h", layers=8, head_dim=32, pattern="MFMM*FMF", space=(2, 8, 32, 16)),
    "tiny-nemotron_h_moe": dict(
        architecture="nemotron_h_moe",
        layers=6,
        head_dim=32,
        pattern="MFM*FM",
        space=(2, 8, 32, 16),
        experts=(8, 3, 64),
        keys={"expert_shared_count": 1, "expert_shared_feed_forward_length": 96, "expert_weights_norm": True, "expert_weights_scale": 2.5},
    ),
    # As in Granite 4, a network beside the experts.
    "tiny-granitemoe-shared": dict(
        architecture="granitemoe",
        experts=(8, 2, 128),
        keys={
            "expert_shared_feed_forward_length": 64,
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "attention.scale": 0.0625,
            "logit_scale": 8.0,
        },
    ),
    # The first layer is without experts, and the last one guesses more tokens.
    "tiny-glm4moe": dict(
        architecture="glm4moe",
        layers=5,
        head_dim=32,
        part=0.5,
        experts=(8, 3, 64),
        keys={
            "leading_dense_block_count": 1,
            "nextn_predict_layers": 1,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "expert_gating_func": 2,
        },
    ),
    "tiny-ernie4_5-moe": dict(
        architecture="ernie4_5-moe",
        tied=True,
        experts=(8, 3, 64),
        keys={"interleave_moe_layer_step": 1, "leading_dense_block_count": 1, "expert_shared_count": 2, "expert_shared_feed_forward_length": 128},
    ),
    "tiny-bailingmoe2": dict(
        architecture="bailingmoe2",
        heads=2,
        kv_heads=1,
        head_dim=32,
        part=0.5,
        experts=(16, 4, 64),
        keys={
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
        },
    ),
    "tiny-dots1": dict(
        architecture="dots1",
        kv_heads=4,
        experts=(8, 2, 64),
        keys={
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
        },
    ),
    "tiny-minimax-m2": dict(architecture="minimax-m2", head_dim=32, part=0.5, experts=(8, 3, 128), keys={"expert_gating_func": 2}),
    "tiny-bailingmoe": dict(
        architecture="bailingmoe",
        experts=(8, 3, 64),
        keys={"expert_shared_count": 2, "expert_weights_norm": True, "expert_weights_scale": 1.0},
    ),
    # DeepSeek V2 Lite: one product of queries, and scores of experts by softmax.
    "tiny-deepseek2-lite": dict(
        architecture="deepseek2",
        experts=(8, 3, 64),
        latent=(None, 32, 16, 16, 24),
        keys={"leading_dense_block_count": 1, "expert_shared_count": 2, "expert_weights_scale": 1.0},
    ),
    # As in DeepSeek V3 and Kimi K2: two products of queries, and longer texts by YaRN.
    "tiny-deepseek2": dict(
        architecture="deepseek2",
        experts=(16, 4, 64),
        latent=(32, 64, 32, 16, 32),
        keys={
            "leading_dense_block_count": 1,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 40.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_log_multiplier": 0.1,
        },
    ),
    # DeepSeek V2: a group of experts is as good as its best one.
    "tiny-deepseek2-best": dict(
        architecture="deepseek2",
        experts=(16, 4, 64),
        latent=(32, 32, 16, 16, 24),
        keys={
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "expert_weights_scale": 1.5,
            "expert_gating_func": 1,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
            "expert_group_counted": 1,
        },
    ),
    "tiny-mistral4": dict(
        architecture="mistral4",
        experts=(8, 3, 64),
        latent=(32, 32, 16, 8, 16),
        keys={
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "attention.temperature_scale": 0.1,
            "attention.temperature_length": 8,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 16.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_log_multiplier": 0.1,
        },
    ),
    # Each second layer has experts, and the fourth is not rotated.
    "tiny-llama4": dict(architecture="llama4", layers=5, experts=(6, 1, 96), keys={"interleave_moe_layer_step": 2}),
    "tiny-qwen": dict(architecture="qwen", kv_heads=4),
    # 7B, which llama.cpp tells by its 32 layers.
    "tiny-baichuan": dict(architecture="baichuan", layers=32, width=32, between=64, heads=2, kv_heads=2),
    # Baichuan 13B has linear biases, which its number of layers says.
    "tiny-baichuan-13b": dict(architecture="baichuan", layers=40, width=32, between=64, heads=2, kv_heads=2),
    "tiny-xverse": dict(architecture="xverse", kv_heads=4),
    "tiny-orion": dict(architecture="orion"),
    "tiny-olmo": dict(architecture="olmo", kv_heads=4, keys={"attention.clamp_kqv": 1.5}),
    "tiny-apertus": dict(architecture="apertus"),
    "tiny-solar-open": dict(
        architecture="glm4moe",
        head_dim=32,
        plain=True,
        experts=(8, 3, 64),
        keys={
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
            "expert_gating_func": 2,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 2.0,
            "rope.scaling.original_context_length": 64,
        },
    ),
    # Windows of three layers of four; the last layer guesses more tokens.
    "tiny-exaone-moe": dict(
        architecture="exaone-moe",
        layers=6,
        experts=(8, 3, 64),
        keys={
            "attention.sliding_window": 8,
            "leading_dense_block_count": 1,
            "nextn_predict_layers": 1,
            "expert_shared_count": 2,
            "expert_shared_feed_forward_length": 128,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "expert_gating_func": 2,
        },
    ),
    # Gates of attention have a matrix of their own.
    "tiny-afmoe": dict(
        architecture="afmoe",
        layers=5,
        head_dim=32,
        experts=(8, 3, 64),
        keys={
            "attention.sliding_window": 8,
            "leading_dense_block_count": 2,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.826,
            "expert_gating_func": 2,
        },
    ),
    # Youtu has the attention of DeepSeek, and no experts.
    "tiny-youtu": dict(architecture="deepseek2", tied=True, latent=(32, 32, 32, 16, 24), keys={"leading_dense_block_count": 3, "expert_feed_forward_length": 128, "expert_shared_count": 0}),
    # Encoders like decoders; of the first, texts are multiplied with two matrices more.
    "tiny-gemma-embedding": dict(
        architecture="gemma-embedding", layers=7, head_dim=32, tied=True, dense=96, keys={"attention.sliding_window": 9, "pooling_type": 1}
    ),
    "tiny-modern-bert": dict(
        architecture="modern-bert", layers=5, kv_heads=4, tied=True, keys={"attention.sliding_window": 8, "rope.freq_base_swa": 10000.0, "pooling_type": 2}
    ),
    # As in the smallest of Granite's.
    "tiny-modern-bert-silu": dict(
        architecture="modern-bert",
        layers=4,
        kv_heads=4,
        tied=True,
        keys={"attention.sliding_window": 8, "attention.sliding_window_pattern": 2, "hidden_activation": "silu", "pooling_type": 1},
    ),
    # Layers without attention, without a network and without either, heads of keys and networks that differ.
    "tiny-deci": dict(architecture="deci", layers=6, factors=True, uneven=([2, 4, 0, 0, 1, 0], [128, 64, 192, 0, 0, 96])),
    "tiny-deci-heads": dict(architecture="deci", uneven=([4, 1, 2], [128, 128, 128])),
    "tiny-minicpm3": dict(architecture="minicpm3", tied=True, longrope=True, latent=(48, 32, 32, 16, 16), keys={"logit_scale": 1.0}),
    "tiny-phimoe": dict(
        architecture="phimoe",
        experts=(8, 2, 128),
        longrope=True,
        keys={"attention.sliding_window": 20, "rope.scaling.original_context_length": 16, "rope.scaling.attn_factor": 1.24},
    ),
    # A state space and attention in each layer, with norms and without.
    "tiny-falcon-h1": dict(architecture="falcon-h1", head_dim=32, attention=(), space=(1, 6, 32, 16), normed=False),
    "tiny-falcon-h1-normed": dict(architecture="falcon-h1", layers=2, attention=(), space=(2, 8, 64, 16)),
    # A state space alone.
    "tiny-mamba2": dict(architecture="mamba2", layers=4, attention=(), space=(2, 8, 32, 16)),
    # Several residual streams; few gates of some layers count, and two layers have no keys of their own.
    "tiny-gemma3n": dict(
        architecture="gemma3n",
        layers=6,
        head_dim=32,
        tied=True,
        kv_heads=1,
        per_layer=(32, 2),
        streams=(4, 32),
        keys={
            "attention.sliding_window": 8,
            "attention.sliding_window_pattern": 3,
            "activation_sparsity_scale": [1.6448536, 0.5, -np.inf, 1.0, -0.25, -np.inf],
            "altup.num_inputs": 4,
        },
    ),
}
# Encoders: one of each kind, with all that files of it may have.
ENCODERS = {
    "tiny-bert": dict(architecture="bert", pooling=gguf.PoolingType.CLS),
    # Heads are no power of two; gate and up in one matrix.
    "tiny-jina-bert-v2": dict(architecture="jina-bert-v2", heads=6, width=96, pooling=gguf.PoolingType.MEAN),
    # As in some files: gate and up apart.
    "tiny-jina-bert-v2-gate": dict(architecture="jina-bert-v2", heads=3, width=96, fused=False, pooling=gguf.PoolingType.LAST),
    "tiny-nomic-bert": dict(architecture="nomic-bert", pooling=gguf.PoolingType.MEAN),
}
TEST_TOKENS = 24

# Architectures with a bias for choosing experts, and how far its numbers spread: scores are those of a sigmoid, or of a softmax of few.
SELECTION = {"glm4moe": 0.2, "afmoe": 0.2, "exaone-moe": 0.2, "bailingmoe2": 0.2, "dots1": 0.2, "minimax-m2": 0.2, "lfm2moe": 0.2, "nemotron_h_moe": 0.2, "ernie4_5-moe": 0.1, "deepseek2": 0.2}

# Embeddings of positions instead of rotations.
GPT2 = ("gpt2", "starcoder")
# Linear attention in most layers, gates of softmax attention in the others.
HYBRID = ("qwen35", "qwen35moe", "qwen3next")
# Scores are not scaled.
UNSCALED = ("gemma3n", "gemma4")
# Latent attention.
LATENT = ("deepseek2", "mistral4", "minicpm3")
# Norms of queries and of keys that are of all heads together.
WHOLE_NORMS = ("olmo2", "olmoe", "minimax-m2")
# Beside experts a network that every token goes through.
SHARED = ("qwen2moe", "qwen35moe", "qwen3next")

# Decoders with layer norms, and whether these have biases.
LAYER_NORMS = {"cohere2": False, "command-r": False, "modern-bert": False, "orion": True, "phimoe": True, "olmo": False, "starcoder2": True, "stablelm": True, "gptneox": True, "falcon": True, "nemotron": True, "phi2": True, "jais2": True, "gpt2": True, "starcoder": True}

# What files of some architectures must say, too.
KEYS = {
    "gpt-oss": {
        "attention.sliding_window": 128,
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096,
    },
    "cohere2": {"attention.sliding_window": 4096, "logit_scale": 0.25},
    "afmoe": {"attention.sliding_window": 2048, "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_weights_norm": True},
    "exaone-moe": {"attention.sliding_window": 128, "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_gating_func": 2},
    "gemma3n": {"attention.sliding_window": 512},
    "gemma4": {"attention.sliding_window": 1024, "final_logit_softcapping": 30.0},
    "nemotron_h_moe": {"expert_shared_count": 1, "expert_shared_feed_forward_length": 512, "expert_weights_norm": True, "expert_weights_scale": 2.5},
    "deepseek2": {
        "leading_dense_block_count": 1,
        "expert_shared_count": 1,
        "expert_weights_norm": True,
        "expert_weights_scale": 2.5,
        "expert_gating_func": 2,
    },
    "gemma-embedding": {"attention.sliding_window": 512, "pooling_type": 1},
    "modern-bert": {"attention.sliding_window": 128, "rope.freq_base_swa": 10000.0, "pooling_type": 1},
    "lfm2": {"shortconv.l_cache": 3},
    "lfm2moe": {"shortconv.l_cache": 3, "leading_dense_block_count": 2, "expert_gating_func": 2},
}

# Where blocks have their scales (f16; a power of two in MXFP4), and how far numbers spread where a scale is 1 and all other bits are random.
BLOCKS = {Type.Q4_0: (0, 4.6), Type.Q8_0: (0, 74), Type.Q4_K: (0, 250), Type.Q6_K: (208, 1370), Type.IQ3_S: (0, 110), Type.MXFP4: (0, 2.9)}


def by_role(layers):
    """Types of matrices: functions of role and layer."""

    def mixed(role, layer):
        if role == "token_embd" or role.startswith(("ffn_gate", "ffn_up")):
            return Type.Q8_0
        return Type.Q4_0 if role == "output" or role.startswith("ffn_down") else Type.F16

    def q4_k_m(role, layer):
        # As llama.cpp chooses.
        first = layers // 8
        more = layer < first or layer >= 7 * layers // 8 or (layer - first) % 3 == 2
        return Type.Q6_K if role == "output" or role.startswith(("attn_v", "ffn_down")) and more else Type.Q4_K

    def mxfp4(role, layer):
        # As OpenAI's files: experts alone have 4 bits.
        return Type.MXFP4 if role.startswith("ffn_") else Type.Q8_0

    plain = {t.name.lower(): (lambda role, layer, t=t: t) for t in (Type.F32, Type.F16, Type.Q8_0, Type.Q4_0, Type.IQ3_S)}
    return {"mixed": mixed, "q4_k_m": q4_k_m, "mxfp4": mxfp4, **plain}


class Writer:
    def __init__(self, file, architecture, seed):
        self.file = gguf.GGUFWriter(file, architecture)
        self.random = np.random.default_rng(seed)
        self.architecture = architecture

    def key(self, key, value):
        kinds = {bool: self.file.add_bool, int: self.file.add_uint32, float: self.file.add_float32, str: self.file.add_string}
        add = (kinds | {list: self.file.add_array})[type(value)]
        add(f"{self.architecture}.{key}", value)

    def matrix(self, name, rows, cols, kind, count=None):
        """A rows x cols matrix, or `count` of them, scaled as trained ones are: outputs keep the size of inputs."""
        scale, shape = cols**-0.5, (rows, cols) if count is None else (count, rows, cols)
        if kind in BLOCKS and cols % gguf.GGML_QUANT_SIZES[kind][0]:
            # Rows without whole blocks, such as those of latent attention.
            kind = Type.Q8_0
        if kind in BLOCKS:
            blocks = self.blocks((count or 1) * rows, cols, kind, scale)
            self.file.add_tensor(name, blocks.reshape(*shape[:-1], -1), raw_dtype=kind)
            return
        w = self.random.standard_normal(shape, dtype=np.float32) * np.float32(scale)
        self.file.add_tensor(name, w.astype(np.float16) if kind == Type.F16 else w)

    def blocks(self, rows, cols, kind, scale):
        """Random bytes, but for the scales."""
        at, spread = BLOCKS[kind]
        elements, size = gguf.GGML_QUANT_SIZES[kind]
        blocks = np.frombuffer(self.random.bytes(rows * cols // elements * size), np.uint8).reshape(-1, size).copy()
        if kind == Type.MXFP4:
            blocks[:, at] = 127 + np.round(np.log2(scale / spread))
            return blocks.reshape(rows, -1)
        d = np.float16(scale / spread)
        blocks[:, at : at + 2] = np.frombuffer(d.tobytes(), np.uint8)
        if kind == Type.Q4_K:
            # The offset: half of the largest number, so that numbers are around zero.
            blocks[:, 2:4] = np.frombuffer(np.float16(7.5 * d).tobytes(), np.uint8)
        return blocks.reshape(rows, -1)

    def vector(self, name, n, mean, spread=0.1):
        self.file.add_tensor(name, (mean + spread * self.random.standard_normal(n)).astype(np.float32))

    def tokenizer(self, vocabulary):
        """Pieces without merit, but every byte can be written."""
        special = [("<unk>", TokenType.UNKNOWN), ("<s>", TokenType.CONTROL), ("</s>", TokenType.CONTROL)]
        some = special + [(f"<0x{b:02X}>", TokenType.BYTE) for b in range(256)]
        some = (some + [(f"▁{i}", TokenType.NORMAL) for i in range(vocabulary)])[:vocabulary]
        self.file.add_tokenizer_model("llama")
        self.file.add_token_list([text for text, _ in some])
        self.file.add_token_scores([-float(i) for i in range(vocabulary)])
        self.file.add_token_types([kind for _, kind in some])
        self.file.add_bos_token_id(1)
        self.file.add_eos_token_id(2)
        self.file.add_unk_token_id(0)

    def finish(self):
        self.file.write_header_to_file()
        self.file.write_kv_data_to_file()
        self.file.write_tensors_to_file()
        self.file.close()


def write(path, seed, kind, architecture, layers, width, between, heads, kv_heads, head_dim, vocabulary, tied=False, factors=False, experts=None, labels=None, part=1.0, longrope=False, linear=None, each=False, two_norms=False, local=None, per_layer=None, attention=None, latent=None, space=None, pattern=None, dense=None, plain=False, normed=True, uneven=None, streams=None, keys=None):
    """`experts`: how many there are, how many a token goes through, and the numbers between the halves of each. `labels`: what a model that
    ranks texts has in place of a vocabulary's logits. `part`: of a head, that which is rotated. `longrope`: divisors of frequencies for short
    texts and for long ones. `linear`: heads of keys and of values of layers with linear attention, and the elements of each. `each`: norms of heads that have weights of their own. `two_norms`: attention and the network, which take the same, have a norm each. `local`: of Gemma 4,
    heads of keys of layers with a window, which all but every third one have, and the elements of each of their heads. `per_layer`: elements of the embedding that a
    token has for each layer, and how many of the last layers have no keys of their own, but networks of twice the width. `attention`: which
    layers have attention, where the others have a convolution instead, or a state space. `latent`: of latent attention the rank of queries, if they are two products, that of keys and values, and the elements of a
    head's query that are not rotated, of those that are, and of its result.
    `space`: of layers that are a state space, where others have attention: heads of keys and of values, and the elements of each. `pattern`: of each layer whether it
    is a state space (M), attention (*) or a network (F), where it is one of them alone. `dense`: numbers between the two matrices that an embedding is multiplied with. `normed`: whether state spaces have norms. `uneven`: of each layer heads of keys and numbers between the halves of the network, where 0 is none. `plain`: whether there are
    no biases and norms of queries and keys, which others of the architecture have. `streams`: how many residual streams there are, and the rank of two matrices beside attention."""
    m = Writer(path, architecture, seed)
    rotated, values = int(part * head_dim), head_dim
    if latent:
        query_rank, rank, plain, rotated, own_values = latent
        kv_heads, head_dim, values = 1, rank + rotated, rank
        if architecture == "minicpm3":
            kv_heads, head_dim = heads, plain + rotated
        if query_rank:
            m.key("attention.q_lora_rank", query_rank)
        m.key("attention.kv_lora_rank", rank)
        if architecture != "minicpm3":
            m.key("attention.key_length_mla", plain + rotated)
            m.key("attention.value_length_mla", own_values)
    m.file.add_name("random weights")
    m.key("block_count", layers)
    m.key("context_length", 2048)
    m.key("embedding_length", width)
    if pattern:
        m.key("attention.layer_norm_epsilon", 1e-5)
        attention = [i for i, kind_of_layer in enumerate(pattern) if kind_of_layer == "*"]
        m.key("feed_forward_length", [between if kind_of_layer == "F" else 0 for kind_of_layer in pattern])
    elif not per_layer:
        m.key("feed_forward_length", uneven[1] if uneven else 0 if architecture == "mamba2" else between * (2 if architecture == "qwen" else 1))
    m.key("attention.head_count", [heads if n else 0 for n in uneven[0]] if uneven else 0 if architecture == "mamba2" else heads)
    if not local and architecture != "mamba2":
        m.key("attention.head_count_kv", uneven[0] if uneven else kv_heads if attention is None or architecture == "falcon-h1" else [kv_heads if i in attention else 0 for i in range(layers)])
    m.key("attention.key_length", head_dim)
    if architecture != "minicpm3":
        m.key("attention.value_length", values)
    m.key(f"attention.layer_norm_{'' if architecture in LAYER_NORMS and architecture != 'phimoe' else 'rms_'}epsilon", 1e-5)
    m.key("rope.freq_base", 10000.0 if architecture in ("llama", "arcee") else 1000000.0)
    m.key("rope.dimension_count", rotated)
    m.key("vocab_size", vocabulary)
    if experts:
        for key, value in zip(("expert_count", "expert_used_count", "expert_feed_forward_length"), experts):
            m.key(key, value)
    if linear:
        key_heads, value_heads, size = linear
        for key, value in (("conv_kernel", 4), ("group_count", key_heads), ("time_step_rank", value_heads), ("state_size", size)):
            m.key(f"ssm.{key}", value)
        m.key("ssm.inner_size", value_heads * size)
        period = (keys or {}).get("full_attention_interval", 4)
    if space:
        key_heads, value_heads, key_size, value_size = space
        sizes = {"conv_kernel": 4, "group_count": key_heads, "time_step_rank": value_heads, "state_size": key_size, "inner_size": value_heads * value_size}
        for key, value in sizes.items():
            m.key(f"ssm.{key}", value)
    if architecture in ("qwen35", "qwen35moe"):
        third = rotated // 6
        m.key("rope.dimension_sections", [rotated // 2 - 2 * third, third, third, 0])
    if architecture in SHARED:
        m.key("expert_shared_feed_forward_length", between)
    told = keys or {}
    if local:
        windowed = [i % 3 < 2 for i in range(layers)]
        told = {"attention.head_count_kv": [local[0] if is_local else kv_heads for is_local in windowed], "attention.sliding_window_pattern": windowed} | told
        for key, value in (("key_length", local[1]), ("value_length", local[1])):
            m.key(f"attention.{key}_swa", value)
        m.key("rope.dimension_count_swa", local[1])
        m.key("rope.freq_base_swa", 10000.0)
    size, shared = per_layer or (0, 0)

    def width_of(layer):
        """Of the networks of Gemma 4's layers without keys of their own twice as much."""
        return between if layer < layers - shared or streams else 2 * between

    if per_layer:
        told = told | {"embedding_length_per_layer_input": size, "attention.shared_kv_layers": shared}
        told["feed_forward_length"] = [width_of(i) for i in range(layers)]
    elif local:
        told["embedding_length_per_layer_input"] = 0
    for key, value in told.items():
        m.key(key, value)
    if architecture == "apertus":
        # Of each layer another activation. These keys are without the architecture's name.
        spread = np.linspace(-0.4, 1.7, layers).tolist()
        for key, numbers in (("alpha_p", spread[::-1]), ("alpha_n", spread), ("beta", [0.5] * layers), ("eps", [-1e-6] * layers)):
            m.file.add_array(f"xielu.{key}", numbers)
    if architecture in WITH_NORMS_IN_FRONT:
        m.file.add_causal_attention(False)
    m.tokenizer(vocabulary)
    if labels:
        m.file.add_pooling_type(gguf.PoolingType.RANK)
        m.file.add_classifier_output_labels(labels)
        m.file.add_string("tokenizer.chat_template.rerank", "Query: {query}\nDocument: {document}\nAnswer: ")

    m.matrix("token_embd.weight", vocabulary, width, kind("token_embd", 0))
    if architecture in GPT2:
        m.matrix("position_embd.weight", 2048, width, Type.F32)
    if factors:
        # Llama 3's, for a context 8 times as long.
        turns = 256 * 10000.0 ** (-2 * np.arange(head_dim // 2) / head_dim) / (2 * np.pi)
        keep = np.clip((turns - 1) / 3, 0, 1)
        m.file.add_tensor("rope_freqs.weight", (1 / (keep + (1 - keep) / 8)).astype(np.float32))
    if longrope:
        for name, most in (("short", 2), ("long", 16)):
            m.file.add_tensor(f"rope_factors_{name}.weight", np.linspace(1, most, rotated // 2, dtype=np.float32))
    if local:
        # A quarter of a head turns; the divisors of the other frequencies are as in Gemma's files.
        m.file.add_tensor("rope_freqs.weight", np.where(np.arange(rotated // 2) < rotated // 8, 1, 1e30).astype(np.float32))
    fused_qkv, fused_up = architecture in ("phi3", "chatglm", "gptneox", "falcon", "bailingmoe2", "modern-bert", "qwen") + GPT2, architecture in ("phi3", "chatglm", "glm4", "modern-bert")

    def norm(name):
        if architecture == "olmo":
            return
        # The name has no ending in files of Falcon-H1.
        m.vector(name + ("" if architecture == "falcon-h1" and "ffn" in name else ".weight"), width, 1)
        if LAYER_NORMS.get(architecture):
            m.vector(name + ".bias", width, 0, 0.3)

    for i in range(layers):
        layer = f"blk.{i}."
        is_local = local and windowed[i]
        own_heads, own_dim = local if is_local else (uneven[0][i] if uneven else kv_heads, head_dim)
        queries, keys = heads * own_dim, own_heads * own_dim
        if architecture not in ("olmo2", "exaone4") and not (architecture == "modern-bert" and i == 0) and own_heads:
            norm(layer + "attn_norm")
        if two_norms:
            norm(layer + "attn_norm_2")
        is_linear = linear and (i + 1) % period
        if is_linear:
            linear_attention(m, kind, i, width, *linear)
        convolves = attention is not None and i not in attention
        is_network = pattern and pattern[i] == "F"
        if convolves and space and not is_network:
            state_space(m, kind, i, width, normed, *space)
            convolves = architecture != "falcon-h1"
        elif convolves and not space:
            m.matrix(layer + "shortconv.in_proj.weight", 3 * width, width, kind("shortconv.in_proj", i))
            m.vector(layer + "shortconv.conv.weight", (width, told["shortconv.l_cache"]), 0.3, 0.5)
            m.matrix(layer + "shortconv.out_proj.weight", width, width, kind("shortconv.out_proj", i))
        if latent:
            latent_attention(m, kind, i, width, heads, *latent)
        # Of each head, its gates follow its queries.
        inputs = [("attn_q", queries * (2 if architecture in HYBRID else 1), width), ("attn_k", keys, width), ("attn_v", keys, width)]
        if architecture == "afmoe":
            inputs.append(("attn_gate", queries, width))
        # Files of Gemma 3n have keys that nobody uses.
        without_keys = i >= layers - shared and not streams
        if without_keys:
            inputs = inputs[:1]
        elif local and not is_local and not per_layer:
            inputs.pop()
        if fused_qkv:
            inputs = [("attn_qkv", queries + 2 * keys, width)]
        for role, rows, cols in [] if is_linear or convolves or latent or not own_heads else inputs + [("attn_output", width, queries)]:
            m.matrix(f"{layer}{role}.weight", rows, cols, kind(role, i))
            biased = not plain and architecture in ("qwen", "qwen2", "qwen2vl", "qwen2moe", "seed_oss", "chatglm", "glm4", "glm4moe") or architecture == "stablelm" and not each
            if architecture in ("phimoe", "gpt-oss", "starcoder2", "gptneox", "phi2", "jais2") + GPT2 or biased and role != "attn_output":
                m.vector(f"{layer}{role}.bias", rows, 0)
        if architecture in ("qwen3", "qwen3vl", "qwen3moe", "qwen3vlmoe", "gemma3", "gemma3n", "gemma-embedding", "gemma4", "exaone4", "exaone-moe", "afmoe", "glm4moe", "bailingmoe2", "dots1", "hunyuan-dense", "hunyuan-moe", "lfm2", "lfm2moe", "apertus") + WHOLE_NORMS + HYBRID and not is_linear and not convolves and not plain:
            whole = architecture in WHOLE_NORMS
            # Where scores are not scaled, they contain that.
            mean = own_dim**-0.5 if architecture in UNSCALED else 1
            m.vector(layer + "attn_q_norm.weight", queries if whole else own_dim, mean, 0.1 * mean)
            if not without_keys:
                m.vector(layer + "attn_k_norm.weight", keys if whole else own_dim, 1)
        if each:
            m.vector(layer + "attn_q_norm.weight", (heads, head_dim), 1)
            m.vector(layer + "attn_k_norm.weight", (kv_heads, head_dim), 1)
        if local:
            m.vector(layer + "layer_output_scale.weight", 1, 0.7)
        if architecture in ("gemma2", "gemma3", "gemma3n", "gemma-embedding", "gemma4", "glm4", "exaone4", "olmo2", "afmoe"):
            m.vector(layer + "post_attention_norm.weight", width, 1)
            m.vector(layer + "post_ffw_norm.weight", width, 1)
        if architecture == "gpt-oss":
            m.vector(layer + "attn_sinks.weight", heads, 1, 1.0)
        by_attention = architecture in ("gpt-oss", "seed_oss", "glm4moe") + HYBRID
        if architecture not in ("olmo2", "exaone4", "cohere2", "command-r", "falcon", "phi2") and not pattern and not (architecture == "stablelm" and each) and architecture != "mamba2" and not (uneven and uneven[1][i] == 0):
            norm(layer + ("post_attention_norm" if by_attention else "ffn_norm"))

        def network(end, between, count=None):
            roles = [("ffn_gate", between, width), ("ffn_up", between, width), ("ffn_down", width, between)]
            if fused_up:
                roles = [("ffn_up", 2 * between, width), roles[2]]
            if architecture in NO_GATE:
                roles = roles[1:]
            if architecture == "gemma4" and count:
                roles = [("ffn_gate_up", 2 * between, width), roles[2]]
            for role, rows, cols in roles:
                m.matrix(f"{layer}{role}{end}.weight", rows, cols, kind(role, i), count)
                if architecture in ("starcoder2", "gptneox", "phi2", "jais2") + GPT2:
                    m.vector(f"{layer}{role}.bias", rows, 0, 0.3)
                if architecture == "gpt-oss":
                    # Far enough from 0 that some gates are clamped.
                    m.vector(f"{layer}{role}{end}.bias", (count, rows), 0, 0.1 if role == "ffn_down" else 4.0)

        # What guesses more tokens is dense in K-EXAONE.
        dense_predictor = architecture == "exaone-moe" and i >= layers - told.get("nextn_predict_layers", 0)
        if pattern and not is_network or architecture == "mamba2" or uneven and uneven[1][i] == 0:
            pass
        elif experts and not dense_predictor and i >= told.get("leading_dense_block_count", 0) and (i + 1) % told.get("interleave_moe_layer_step", 1) == 0:
            count, _, own = experts
            m.matrix(layer + "ffn_gate_inp.weight", count, width, Type.F32)
            if architecture == "gpt-oss":
                m.vector(layer + "ffn_gate_inp.bias", count, 0)
            if architecture in SELECTION and not (latent and query_rank is None):
                # Far enough from 0 that some experts are chosen for it.
                m.vector(layer + "exp_probs_b.bias", count, 0, SELECTION[architecture])
            network("_exps", own, count)
            if architecture == "gemma4":
                network("", between)
                m.vector(layer + "ffn_gate_inp.scale", width, 1)
                m.vector(layer + "ffn_down_exps.scale", count, 1, 0.3)
                for role in ("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"):
                    m.vector(f"{layer}{role}.weight", width, 1)
            all_shared = own if architecture == "llama4" else told.get("expert_shared_count", 0) * own
            if architecture in SHARED:
                m.vector(layer + "ffn_gate_inp_shexp.weight", width, 0)
                all_shared = between
            all_shared = told.get("expert_shared_feed_forward_length", all_shared)
            if all_shared:
                network("_shexp", all_shared)
        else:
            network("", uneven[1][i] if uneven else width_of(i))
        if per_layer:
            m.matrix(layer + "inp_gate.weight", size, width, kind("inp_gate", i))
            m.matrix(layer + "proj.weight", width, size, kind("proj", i))
            m.vector(layer + "post_norm.weight", width, 1)
        if streams:
            of_streams(m, kind, i, width, *streams)
        if i >= layers - told.get("nextn_predict_layers", 0):
            m.matrix(layer + "nextn.eh_proj.weight", width, 2 * width, kind("nextn.eh_proj", i))
            for name in ("enorm", "hnorm", "shared_head_norm"):
                m.vector(f"{layer}nextn.{name}.weight", width, 1)
    norm("token_embd_norm" if architecture.startswith("lfm2") else "output_norm")
    if architecture == "modern-bert":
        norm("token_embd_norm")
    if dense:
        for key, value in (("2_feat_in", width), ("2_feat_out", dense), ("3_feat_in", dense), ("3_feat_out", width)):
            m.key(f"dense_{key}", value)
        m.matrix("dense_2.weight", dense, width, kind("dense_2", 0))
        m.matrix("dense_3.weight", width, dense, kind("dense_3", 0))
    if per_layer:
        m.matrix("per_layer_token_embd.weight", vocabulary, size * layers, kind("token_embd", 0))
        m.matrix("per_layer_model_proj.weight", size * layers, width, kind("per_layer_model_proj", 0))
        m.vector("per_layer_proj_norm.weight", size, 1)
    if streams:
        m.matrix("altup_proj.weight", width, width, kind("altup_proj", 0), streams[0] - 1)
        m.matrix("altup_unembd_proj.weight", width, width, kind("altup_unembd_proj", 0), streams[0] - 1)
    if labels:
        m.matrix("cls.output.weight", len(labels), width, Type.F16)
    elif not tied:
        m.matrix("output.weight", vocabulary, width, kind("output", 0))
    if architecture in ("phi2", "phimoe"):
        m.vector("output.bias", vocabulary, 0, 0.3)
    m.finish()


def of_streams(m, kind, i, width, count, rank):
    """What a layer has for several residual streams. Numbers of the router are about as large as 1, and so are the factors that they give, all together."""
    layer = f"blk.{i}."
    m.file.add_tensor(layer + "altup_router.weight", (m.random.standard_normal((count, width)) * width**0.5).astype(np.float32))
    m.vector(layer + "altup_router_norm.weight", width, 1)
    m.vector(layer + "altup_predict_coef.weight", (count * count, count), 0, 0.5 / count)
    m.vector(layer + "altup_correct_coef.weight", (count, count), 0, 1 / count)
    m.vector(layer + "altup_correct_scale.weight", width, 1)
    m.matrix(layer + "laurel_l.weight", rank, width, kind("laurel_l", i))
    m.matrix(layer + "laurel_r.weight", width, rank, kind("laurel_r", i))
    m.vector(layer + "laurel_post_norm.weight", width, 1)


def linear_attention(m, kind, i, width, key_heads, value_heads, size):
    """A layer's linear attention by the gated delta rule."""
    layer, values = f"blk.{i}.", value_heads * size
    channels = 2 * key_heads * size + values
    decays = [("ssm_ba", 2 * value_heads)] if m.architecture == "qwen3next" else [("ssm_beta", value_heads), ("ssm_alpha", value_heads)]
    for role, rows in [("attn_qkv", channels), ("attn_gate", values)] + decays:
        m.matrix(f"{layer}{role}.weight", rows, width, kind(role, i))
    m.vector(layer + "ssm_conv1d.weight", (channels, 4), 0.25, 0.3)
    m.vector(layer + "ssm_dt.bias", value_heads, 0, 1.0)
    m.file.add_tensor(layer + "ssm_a", -m.random.uniform(0.05, 2, value_heads).astype(np.float32))
    m.vector(layer + "ssm_norm.weight", size, 1)
    m.matrix(layer + "ssm_out.weight", width, values, kind("ssm_out", i))


def latent_attention(m, kind, i, width, heads, query_rank, rank, plain, rotated, values):
    """A layer's latent attention."""
    layer, queries = f"blk.{i}.attn_", heads * (plain + rotated)
    inputs = [("kv_a_mqa", rank + rotated, width), ("output", width, heads * values)]
    if query_rank:
        inputs += [("q_a", query_rank, width), ("q_b", queries, query_rank)]
        m.vector(layer + "q_a_norm.weight", query_rank, 1)
    else:
        inputs += [("q", queries, width)]
    for role, rows, cols in inputs:
        m.matrix(f"{layer}{role}.weight", rows, cols, kind(f"attn_{role}", i))
    m.vector(layer + "kv_a_norm.weight", rank, 1)
    if m.architecture == "minicpm3":
        m.matrix(layer + "kv_b.weight", heads * (plain + values), rank, kind("attn_kv_b", i))
        return
    for role, rows, cols in (("k_b", rank, plain), ("v_b", values, rank)):
        m.matrix(f"{layer}{role}.weight", rows, cols, kind(f"attn_{role}", i), heads)


def state_space(m, kind, i, width, normed, key_heads, value_heads, key_size, value_size):
    """A layer of Mamba-2."""
    layer, values = f"blk.{i}.", value_heads * value_size
    channels = 2 * key_heads * key_size + values
    m.matrix(layer + "ssm_in.weight", channels + values + value_heads, width, kind("ssm_in", i))
    m.vector(layer + "ssm_conv1d.weight", (channels, 4), 0.25, 0.3)
    m.vector(layer + "ssm_conv1d.bias", channels, 0, 0.3)
    m.vector(layer + "ssm_dt.bias", value_heads, 0, 1.0)
    m.file.add_tensor(layer + "ssm_a", -m.random.uniform(0.05, 2, (value_heads, 1)).astype(np.float32))
    m.vector(layer + "ssm_d", (value_heads, 1), 1, 0.5)
    if normed:
        m.vector(layer + "ssm_norm.weight", (key_heads, values // key_heads), 1)
    m.matrix(layer + "ssm_out.weight", width, values, kind("ssm_out", i))


def write_encoder(path, seed, kind, architecture, heads, pooling, width=64, fused=True, layers=3, between=128, vocabulary=320):
    """`fused`: whether files have matrices one below the other that multiply the same."""
    m = Writer(path, architecture, seed)
    jina, bert = architecture == "jina-bert-v2", architecture == "bert"
    m.file.add_name("random weights")
    m.key("block_count", layers)
    m.key("context_length", 64)
    m.key("embedding_length", width)
    m.key("feed_forward_length", between)
    m.key("attention.head_count", heads)
    m.key("attention.layer_norm_epsilon", 1e-12)
    m.file.add_causal_attention(False)
    m.file.add_pooling_type(pooling)
    if architecture == "nomic-bert":
        m.key("rope.freq_base", 1000.0)
    words(m.file, vocabulary)

    def norm(name):
        m.vector(name + ".weight", width, 1)
        m.vector(name + ".bias", width, 0, 0.3)

    def linear(name, rows, cols, role, layer, bias):
        m.matrix(name + ".weight", rows, cols, kind(role, layer))
        if bias:
            m.vector(name + ".bias", rows, 0, 0.3)

    m.matrix("token_embd.weight", vocabulary, width, kind("token_embd", 0))
    m.matrix("token_types.weight", 2, width, Type.F32)
    if bert:
        m.matrix("position_embd.weight", 64, width, Type.F32)
    norm("token_embd_norm")
    for i in range(layers):
        layer = f"blk.{i}."
        if architecture == "nomic-bert":
            linear(layer + "attn_qkv", 3 * width, width, "attn_qkv", i, False)
        else:
            for role in ("attn_q", "attn_k", "attn_v"):
                linear(layer + role, width, width, role, i, True)
        linear(layer + "attn_output", width, width, "attn_output", i, architecture != "nomic-bert")
        norm(layer + "attn_output_norm")
        if not bert and not (jina and fused):
            linear(layer + "ffn_gate", between, width, "ffn_gate", i, False)
        linear(layer + "ffn_up", 2 * between if jina and fused else between, width, "ffn_up", i, bert)
        linear(layer + "ffn_down", width, between, "ffn_down", i, architecture != "nomic-bert")
        norm(layer + "layer_output_norm")
    m.finish()


def words(file, vocabulary):
    """A vocabulary of WordPiece: letters at the beginning of words and within them, and some words."""
    letters = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-"
    some = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"] + ["▁" + c for c in letters] + list(letters)
    some += ["▁" + word for word in "the quick brown fox jump over lazy dog a of and to in is it".split()] + ["s", "ed", "ing"]
    some = list(dict.fromkeys(some))
    some = (some + [f"▁word{i}" for i in range(vocabulary)])[:vocabulary]
    file.add_tokenizer_model("bert")
    file.add_token_type_count(2)
    file.add_token_list(some)
    file.add_token_types([TokenType.CONTROL] * 5 + [TokenType.NORMAL] * (vocabulary - 5))
    file.add_pad_token_id(0)
    file.add_unk_token_id(1)
    file.add_bos_token_id(2)
    file.add_sep_token_id(3)
    file.add_mask_token_id(4)


def write_tests(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, special) in enumerate(ENCODERS.items()):
        path, shape = folder / f"{name}.gguf", dict(heads=4) | special
        write_encoder(path, seed, by_role(3)["mixed"], **shape)
        tokens = [2] + [5 + (7 * i * i + 13 * seed + 3) % 315 for i in range(1, TEST_TOKENS - 1)] + [3]
        embedding = [float(f"{x:.7g}") for x in Model(path).embedding(tokens)]
        truth = {"tokens": tokens, "embedding": embedding}
        (folder / f"{name}.json").write_text(json.dumps(truth, separators=(",", ":")))
    for seed, (name, special) in enumerate(TESTS.items()):
        shape = dict(layers=3, weights="mixed", width=64, between=128, heads=4, kv_heads=2, head_dim=16, vocabulary=320) | special
        path = folder / f"{name}.gguf"
        kinds = by_role(shape["layers"])[shape.pop("weights")]
        write(path, seed, kinds, **shape)
        tokens = [1] + [(7 * i * i + 13 * seed + 3) % 320 for i in range(1, TEST_TOKENS)]
        model = Model(path)
        if model.architecture in WITH_NORMS_IN_FRONT:
            truth = {"tokens": tokens, "embedding": [float(f"{x:.7g}") for x in model.embedding(tokens)]}
        else:
            logits = [[float(f"{x:.7g}") for x in row] for row in model.logits(tokens)]
            truth = {"tokens": tokens, "logits": logits} | ({"score": model.score(tokens)} if "labels" in shape else {})
        (folder / f"{name}.json").write_text(json.dumps(truth, separators=(",", ":")))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", nargs="?", help="where to write it")
    p.add_argument("--tests", metavar="FOLDER", help="write all models for tests instead")
    p.add_argument("--architecture", choices=sorted({special["architecture"] for special in TESTS.values()}), default="llama")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--dim", type=int, default=2048, help="model width, a multiple of 256 (default: 2048)")
    p.add_argument("--experts", metavar="COUNT,USED", help="a mixture of so many experts, of which a token goes through so many")
    p.add_argument("--vocab", type=int, default=None, help="tokens (default: 16 * dim)")
    p.add_argument("--weights", choices=sorted(by_role(1)), default="mixed", help="types of matrices (default: mixed)")
    p.add_argument("--seed", type=int, default=0)
    a = p.parse_args()
    if (a.file is None) == (a.tests is None):
        p.error("either a file or --tests FOLDER")
    if a.tests:
        return write_tests(Path(a.tests))
    if a.dim <= 0 or a.dim % 256 or a.layers < 1 or (a.vocab is not None and a.vocab < 1):
        p.error("--dim must be a multiple of 256, --layers and --vocab at least 1")
    heads = a.dim // 64
    between = a.dim * 11 // 4 // 256 * 256
    experts = None
    if a.experts:
        count, used = (int(n) for n in a.experts.split(","))
        experts = (count, used, between)
    elif all("experts" in special for special in TESTS.values() if special["architecture"] == a.architecture):
        p.error(f"{a.architecture} needs --experts")
    kinds = by_role(a.layers)[a.weights]
    keys = KEYS.get(a.architecture)
    kv_heads = heads if a.architecture == "modern-bert" else max(1, heads // 8)
    # As wide as the model, and twice as wide for values.
    linear = (a.dim // 128, a.dim // 64, 128) if a.architecture in HYBRID else None
    local = (kv_heads, 64) if a.architecture == "gemma4" else None
    attention = range(2, a.layers, 4) if a.architecture.startswith("lfm2") or a.architecture == "granitehybrid" else None
    pattern = ("MFM*F" * a.layers)[: a.layers] if a.architecture.startswith("nemotron_h") else None
    # Twice as wide as the model.
    uneven = ([kv_heads * (i % 5 > 0) for i in range(a.layers)], [between // (1 + i % 2) for i in range(a.layers)]) if a.architecture == "deci" else None
    alone = a.architecture in ("falcon-h1", "mamba2")
    attention = () if alone else attention
    space = (max(1, a.dim // 512), a.dim // 32, 128, 64) if pattern or alone or a.architecture == "granitehybrid" else None
    # As llama.cpp expects it.
    each = a.architecture == "command-r" and a.layers >= 64
    dense = 4 * a.dim if a.architecture == "gemma-embedding" else None
    # The last part of the layers has no keys of its own.
    per_layer, streams = ((256, a.layers * 3 // 7), (4, 64)) if a.architecture == "gemma3n" else (None, None)
    latent = (a.dim // 4, 256, 64, 32, 64) if a.architecture == "minicpm3" else (a.dim // 4, 512, 128, 64, 128) if a.architecture in LATENT else None
    write(a.file, a.seed, kinds, a.architecture, a.layers, a.dim, between, heads, kv_heads, 64, a.vocab or 16 * a.dim, experts=experts, linear=linear, each=each, local=local, attention=attention, latent=latent, space=space, pattern=pattern, dense=dense, uneven=uneven, per_layer=per_layer, streams=streams, keys=keys)


main()
