"""Logits: the largest single tensors of a large vocabulary."""

import pytest

from cost_model.catalogue import model
from cost_model.memory import detail
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec
from tests.cost_model.memory.samples import dgx


def logits(plan: Plan, seq_len: int = 32768, name: str = "qwen2.5-7b") -> float:
    training = TrainingSpec(seq_len=seq_len, global_batch=plan.dp)
    found = detail(model(name), dgx(16), training, plan)
    return max(m.categories["logits"] for m in found.moments)


def test_fp32_logits_take_the_allocation_that_failed_whatever_dp_is() -> None:
    """LLaMA-Factory #4141: 32768 x 152064 x 4 bytes = 19.9 GB; the loss holds three times that.

    The log-softmax (4), its gradient (4) and the gradient it was given (4). DeepSpeed's engine on
    fake tensors holds 12 bytes a logit, too: the 16-bit logits are gone with the forward pass.
    """
    one = 32768 * 152064 * 4
    assert one == pytest.approx(19.9e9, rel=2e-3)
    for dp in (8, 128):
        assert logits(Plan(dp=dp, zero_stage=3)) == pytest.approx(one * 12 / 4)


def test_megatrons_loss_works_on_each_ranks_vocabulary() -> None:
    whole, split = (logits(Plan(software="megatron", tp=t)) for t in (1, 8))
    assert split == pytest.approx(whole / 8)


def test_a_chunked_loss_never_holds_whole_logits() -> None:
    assert logits(Plan(chunked_loss=True)) == pytest.approx(logits(Plan()) / 8)


def test_only_the_last_stage_has_logits() -> None:
    training = TrainingSpec(seq_len=4096, global_batch=8)
    plan = Plan(software="megatron", pp=4, grad_accum=8)
    found = detail(model("llama-3.1-8b"), dgx(), training, plan)
    with_logits = {m.stage for m in found.moments if m.categories["logits"] > 0}
    assert with_logits == {3}
