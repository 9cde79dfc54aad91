"""Floating-point operations of one training iteration, by Megatron's own formula."""

from __future__ import annotations


def training_flops(
    *,
    sequences: int,
    seq_length: int,
    hidden_size: int,
    ffn_hidden_size: int,
    num_layers: int,
    vocab_size: int,
    gated_mlp: bool = True,
) -> int:
    """Model FLOPs of forward and backward for `sequences` sequences of `seq_length` tokens.

    The formula is that of num_floating_point_operations() in megatron/training/training.py of NVIDIA/Megatron-LM
    (core 0.16, the dense transformer without grouped queries); megatron.core itself has none. It counts the matrix
    products alone, 2mnk each, three times (forward, gradient of the data, gradient of the weights), and of the
    attention scores only the half that the causal mask leaves. Recomputation is not counted.
    """
    qkv = 3 * hidden_size * hidden_size
    scores = seq_length * hidden_size  # two products (QK^T and its product with V), half of each masked
    projection = hidden_size * hidden_size
    mlp = (3 if gated_mlp else 2) * hidden_size * ffn_hidden_size
    logits = hidden_size * vocab_size
    per_token = 3 * 2 * (num_layers * (qkv + scores + projection + mlp) + logits)
    return sequences * seq_length * per_token
