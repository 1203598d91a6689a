"""What is to be trained: sequence, batch, precision, optimizer, method."""

from typing import Literal

from pydantic import Field

from cost_model.specs.frozen import MOST_COUNT, Frozen

Precision = Literal["bf16", "fp16", "fp32"]
Optimizer = Literal[
    "adamw", "adam8bit", "paged_adam8bit", "lion", "sgd", "adafactor", "adagrad", "muon"
]
AttentionKernel = Literal["eager", "fused_softmax", "flash1", "flash2", "sdpa"]

Stack = Literal[
    "hf_trainer",
    "alpa",
    "aa_scaling",
    "nanotron",
    "deepspeed_2021",
    "internevo",
    "paddle",
    "litgpt",
    "llama",
    "torchtrain",
    "torchtitan",
    "nemo",
    "dt_fm",
]


class Lora(Frozen):
    """Low-rank adapters on the named matrices; the base is frozen (4-bit for QLoRA)."""

    rank: int = Field(default=16, ge=1, le=MOST_COUNT)
    targets: Literal["attention", "all_linear"] = "all_linear"
    quantized_base: bool = False
    """QLoRA: the base is held in 4-bit NF4 (0.5 byte a weight and its block constants)."""
    double_quantized: bool = False
    """The constants of a 4-bit base are quantised too (bnb_4bit_use_double_quant; the QLoRA paper's
    own runs have it)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """On the input of every adapter: its mask and the dropped copy stay until the backward pass."""


class TrainingSpec(Frozen):
    """One training run."""

    seq_len: int = Field(ge=1, le=2**31)
    global_batch: int = Field(ge=1, le=2**31)
    """Sequences per optimizer step."""
    precision: Precision = "bf16"
    matmul_precision: Literal["tf32", "fp8"] | None = None
    """Number format of the linear layers' matrix products where it is not `precision`: TF32 under
    fp32 training (the default of NVIDIA's containers on Ampere and later), fp8 under bf16."""
    optimizer: Optimizer = "adamw"
    attention: AttentionKernel = "flash2"
    fused_norm: bool = False
    """Norms, residual and dropout run as one fused kernel (Apex, flash-attn layer norm)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    fp32_grad_accum: bool | None = None
    """Gradients held in fp32; None takes the software's own default for the precision."""
    fp32_master: bool = True
    """Mixed precision holds an fp32 copy of the weights and fp32 optimizer states; False trains
    with weights, gradients and states in `precision` alone."""
    fused_loss: bool = False
    """The loss is compiled or fused into kernels that read the logits in `precision`: beside them
    only their gradient exists, and no fp32 copy."""
    stack: Stack | None = None
    """The framework that trains, where it holds other memory than the plan's software does of
    itself (memory.json, `stacks`)."""
    whole_at_load: bool = False
    """Every rank loads the whole model before it is sharded (from_pretrained outside zero.Init or
    without efficient loading): weights and the file's in fp32 on the host, a 4-bit base on the GPU,
    where it is quantised."""
    tokens: int | None = Field(default=None, ge=1, le=10**18)
    """Tokens to train on, for days and cost."""
    lora: Lora | None = None

    @property
    def tokens_per_step(self) -> int:
        """Tokens per optimizer step."""
        return self.seq_len * self.global_batch
