"""The training part of a request."""

from typing import Self

from pydantic import Field, field_validator, model_validator

from cost_model.specs import ClusterSpec, TrainingSpec

BEFORE_FLASH_2 = ("volta", "turing", "cpu")
"""Generations without flash-attention 2 kernels."""


ONE_BIT = ("onebitadam", "1bitadam", "zerooneadam", "01adam", "onebitlamb", "1bitlamb")
"""Communication-compressing optimizers that older DeepSpeed releases had."""


class TrainingRequest(TrainingSpec):
    """A training run whose global batch is given in sequences or in tokens."""

    global_batch: int = Field(default=0, ge=1, le=2**31)
    """Sequences per optimizer step; leave it out to give `global_batch_tokens`."""
    global_batch_tokens: int | None = Field(default=None, ge=1, le=2**50)
    """Tokens per optimizer step, rounded down to whole sequences."""

    @field_validator("optimizer", mode="before")
    @classmethod
    def _no_one_bit(cls, value: object) -> object:
        folded = str(value).lower().replace("_", "").replace("-", "")
        if folded in ONE_BIT:
            raise ValueError(
                "DeepSpeed 0.19.8 has no 1-bit optimizer any more (removed from "
                "runtime/engine.py:2018); give adamw, and for a slow network "
                "search.allow.compression (ZeRO++)"
            )
        return value

    @model_validator(mode="after")
    def _one_batch(self) -> Self:
        if (self.global_batch > 0) == (self.global_batch_tokens is not None):
            raise ValueError("give either global_batch (sequences) or global_batch_tokens")
        if self.global_batch_tokens is not None and self.global_batch_tokens < self.seq_len:
            raise ValueError(
                f"global_batch_tokens of {self.global_batch_tokens} is less than one sequence "
                f"of {self.seq_len} tokens; give at least {self.seq_len}"
            )
        return self

    @property
    def notes(self) -> tuple[str, ...]:
        """Where the run is not quite what was asked for."""
        if self.global_batch_tokens is None or self.global_batch_tokens % self.seq_len == 0:
            return ()
        sequences = self.global_batch_tokens // self.seq_len
        return (
            f"A step of {self.global_batch_tokens:,} tokens is not a whole number of sequences: "
            f"it was rounded down to {sequences:,} of {self.seq_len:,} tokens, "
            f"{sequences * self.seq_len:,} in all.",
        )

    def spec(self, cluster: ClusterSpec) -> TrainingSpec:
        """The run in sequences; precision and attention left out take what the GPU can do.

        A GPU without a bf16 matrix unit is older than Ampere: there the defaults are fp16 and
        PyTorch's own attention, since flash-attention 2 needs Ampere (its README).
        """
        values = self.model_dump(exclude={"global_batch_tokens"})
        if self.global_batch_tokens is not None:
            values["global_batch"] = self.global_batch_tokens // self.seq_len
        gpu = cluster.node.gpu
        if "precision" not in self.model_fields_set and gpu.bf16_tflops is None:
            values["precision"] = "fp16"
        no_flash = gpu.generation in BEFORE_FLASH_2 or values["precision"] == "fp32"
        if "attention" not in self.model_fields_set and no_flash:
            values["attention"] = "sdpa"
        return TrainingSpec(**values)
