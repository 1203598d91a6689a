"""The published QLoRA run: LLaMA-65B on one GPU of 48 GB (arXiv 2305.14314)."""

from typing import Any

import pytest

from planner.request import PlanRequest
from planner.search import search

LLAMA_65B_MATRICES = 80 * (4 * 8192**2 + 3 * 8192 * 22016)
"""Attention and MLP weights of LLaMA-65B (arXiv 2302.13971, table 2), which are in 4 bits."""


def _parameters(double: bool) -> tuple[float, float, float]:
    lora: dict[str, Any] = {"rank": 64, "quantized_base": True, "double_quantized": double}
    training = {
        "seq_len": 512,
        "global_batch": 16,
        "optimizer": "paged_adam8bit",
        "fp32_master": False,
        "lora": lora,
    }
    request = PlanRequest.parse(
        {
            "model": {"preset": "llama-65b"},
            "cluster": {"gpu": "a6000", "gpus_per_node": 1, "host_ram_gib": 256},
            "training": training,
            "search": {"fixed": {"micro_batch": 1}, "keep": 1, "min_fits_probability": 0.1},
        }
    )
    best = search(request.resolve()).candidates[0]
    memory = best.memory
    held = memory.categories["parameters"]
    return held, memory.total_bytes / memory.capacity_bytes, best.fits_probability


def test_a_65b_model_is_finetuned_on_one_gpu_of_48_gb() -> None:
    """Section 1: "finetune a 65B parameter model on a single 48GB GPU", its adapters in 16 bits."""
    _, share, probability = _parameters(double=True)
    assert share < 1
    assert probability > 0.5


def test_double_quantization_saves_0_37_bits_a_parameter() -> None:
    """Section 3: from 0.5 bits to 0.127, "a reduction of 0.373 bits per parameter"."""
    saved = _parameters(double=False)[0] - _parameters(double=True)[0]
    assert saved == pytest.approx(0.373 / 8 * LLAMA_65B_MATRICES, rel=0.01)
