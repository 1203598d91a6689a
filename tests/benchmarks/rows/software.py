"""Which software profile a framework's name means, and what that software does by default."""

import re

from cost_model.plans import Software
from cost_model.specs.training import Stack
from tests.benchmarks.rows.assumptions import Ledger
from tests.benchmarks.rows.raw import RawRow

_FSDP = (
    r"fsdp|composer|torchtitan|torchtrain|lit-?gpt|torchtune|lightning|\bddp\b|maxtext|paxml|jax"
    r"|fairscale|metaseq|levanter|unsloth|llm-?foundry|\bolmo"
)
_THIRD_PARTY_3D = (
    r"aa-scaling|internevo|paddle|alpa|parax|aceso|gpipe|torch pipe|nanotron|mist|colossal|oslo"
    r"|galvatron|merak|vescale|varuna|hai-llm"
)


def software_of(  # noqa: PLR0911 - one line a spelling
    raw: RawRow, tp: int, pp: int, ledger: Ledger
) -> Software:
    """The profile of a row's framework.

    tp, pp: degrees of the run, which decide where the name does not.
    """
    name = raw.text("framework").lower()
    zero3 = raw.zero_stage == 3
    if re.search(r"megatron.*deepspeed|deepspeed 3d|sailor|gpt-?neox", name):
        return Software.MEGATRON_DEEPSPEED
    if "deepspeed" in name:
        return Software.DEEPSPEED
    if re.search(r"megatron|nemo|flagscale|metis", name):
        return Software.MEGATRON
    if re.search(_FSDP, name):
        return Software.FSDP
    if "aa-scaling" in name:
        ledger.assume("plain_pytorch_3d")
        return Software.DEEPSPEED_PIPELINE
    if re.search(_THIRD_PARTY_3D, name):
        ledger.assume("third_party_3d")
        if zero3 and tp == pp == 1:
            return Software.FSDP
        return Software.MEGATRON
    ledger.assume("unknown_software")
    if "fsdp" in raw.text("sharding").lower():
        return Software.FSDP
    if tp > 1 or pp > 1:
        return Software.MEGATRON
    return Software.FSDP if zero3 else Software.DEEPSPEED


_STACKS: tuple[tuple[str, Stack], ...] = (
    (r"alpa|parax", "alpa"),
    (r"aa-scaling", "aa_scaling"),
    (r"nanotron", "nanotron"),
    (r"intern(evo|lm)", "internevo"),
    (r"paddle", "paddle"),
    (r"lit-?gpt", "litgpt"),
    (r"^meta 4d", "llama"),
    (r"torchtrain", "torchtrain"),
    (r"torchtitan", "torchtitan"),
    (r"^nemo", "nemo"),
    (r"decentralized_fm", "dt_fm"),
)


_ZERO3_OF_2021 = r"lightning deepspeed|megatron \+ deepspeed zero-?3"
"""Frameworks whose published runs of ZeRO 3 are all of 2021."""


def stack_of(raw: RawRow, software: Software) -> Stack | None:
    """The framework of a row, where it has a memory profile of its own.

    software: that it is like; what shards as FSDP does has FSDP's profile.
    """
    name = raw.text("framework").lower()
    old = re.search(r"\b(v100|t4)\b", raw.text("gpu").lower())
    if old and "deepspeed" in name and software is Software.MEGATRON_DEEPSPEED:
        return "deepspeed_2021"
    if raw.integer("zero_stage") == 3 and re.search(_ZERO3_OF_2021, name):
        return "deepspeed_2021"
    found = next((stack for pattern, stack in _STACKS if re.search(pattern, name)), None)
    return None if found == "alpa" and software is Software.FSDP else found


def modern(raw: RawRow) -> bool:
    """Whether the software is of 2023 or later: flash attention and overlap by default."""
    name = raw.text("framework").lower()
    new = (
        r"core|bridge|nemo 2[3-9]|torchtitan|torchtune|maxtext|nanotron|flagscale|litgpt|real"
        r"|axolotl|unsloth|llama-?factory|ms-swift|verl|olmo"
    )
    return bool(re.search(new, name)) or raw.flag("flash_attn") is True
