"""The GPT, wrapped in Megatron's data parallelism, and its optimizer."""

from __future__ import annotations

from typing import Any

import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from .arguments import Arguments


def transformer_config(arguments: Arguments, dtype: torch.dtype) -> TransformerConfig:
    """Describe a small transformer of Llama's kind: RMSNorm, SwiGLU, rotary positions, no biases, no dropout. The
    fusions are off because they need Apex or Transformer Engine; the weights are drawn on the CPU, so that they are the
    same on every kind of machine and for every tensor-parallel size."""
    return TransformerConfig(
        num_layers=arguments.num_layers,
        hidden_size=arguments.hidden_size,
        ffn_hidden_size=arguments.ffn_size,
        num_attention_heads=arguments.num_attention_heads,
        tensor_model_parallel_size=arguments.tensor_parallel,
        pipeline_model_parallel_size=arguments.pipeline_parallel,
        normalization="RMSNorm",
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        fp16=dtype is torch.float16,
        bf16=dtype is torch.bfloat16,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        use_cpu_initialization=True,
        gradient_accumulation_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        apply_rope_fusion=False,
        cuda_graph_scope=[],
    )


def seed_everything(seed: int) -> None:
    """Seed torch and Megatron's random states; pipeline stages get different seeds, as they hold different layers."""
    stage_seed = seed + 100 * parallel_state.get_pipeline_model_parallel_rank()
    torch.manual_seed(stage_seed)
    tensor_parallel.model_parallel_cuda_manual_seed(stage_seed)


def build(arguments: Arguments, device: torch.device) -> tuple[Any, Any]:
    """Build this rank's part of the model (in DistributedDataParallel) and Megatron's optimizer. bf16 with fp32 master
    weights on a GPU, fp32 on the CPU; on both, on request, fp16 with master weights and dynamic loss scaling."""
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    if arguments.fp16:
        dtype = torch.float16
    config = transformer_config(arguments, dtype)
    model: Any = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(normalization="RMSNorm"),
        vocab_size=arguments.vocab_size,
        max_sequence_length=arguments.seq_length,
        position_embedding_type="rope",
        pre_process=parallel_state.is_pipeline_first_stage(),
        post_process=parallel_state.is_pipeline_last_stage(),
    )
    model.to(device)
    if config.fp16 or config.bf16:
        model = Float16Module(config, model)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(grad_reduce_in_fp32=True), model)
    model.broadcast_params()
    optimizer = get_megatron_optimizer(
        OptimizerConfig(
            optimizer="adam",
            lr=arguments.lr,
            fp16=config.fp16,
            bf16=config.bf16,
            params_dtype=dtype,
            initial_loss_scale=arguments.initial_loss_scale,
            min_loss_scale=arguments.min_loss_scale,
            loss_scale_window=arguments.loss_scale_window,
            hysteresis=arguments.hysteresis,
            clip_grad=1.0,
        ),
        [model],
        use_gloo_process_groups=False,
    )
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    return model, optimizer
