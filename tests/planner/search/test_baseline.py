"""The rule of thumb against what practitioners do (arXiv 2104.04473, section 3 and table 1)."""

from planner.candidate import Candidate
from planner.search import search
from tests.planner.requests import resolve


def _thumb(*args: object, **options: object) -> Candidate:
    found = search(resolve(*args, **options)).baseline  # type: ignore[arg-type]
    assert found is not None
    return found


def test_a_model_that_fits_one_gpu_is_only_replicated() -> None:
    """BERT-large holds 0.34 billion parameters: 5 GiB of states."""
    plan = _thumb("bert-large", "dgx-1", seq_len=512, global_batch=512).plan
    assert (plan.tp, plan.pp, plan.dp) == (1, 1, 8)


def test_a_model_larger_than_a_node_takes_tensor_parallelism_to_the_whole_node_first() -> None:
    """Table 1 of the paper: 175 billion parameters, TP 8 on nodes of eight."""
    one = _thumb("gpt-3-175b", nodes=16, global_batch=256)
    assert one.plan.tp == 8
    assert one.plan.pp > 1
    assert one.plan.micro_batch <= 2


def test_a_model_that_fits_a_node_with_tensor_parallelism_has_no_stages() -> None:
    """Takeaway 1: stages come once the GPUs of a node are used up."""
    plan = _thumb("llama-2-13b", "dgx-a100-40g", global_batch=64).plan
    assert plan.pp == 1


def test_without_nvlink_stages_come_before_tensor_parallelism() -> None:
    """Hugging Face's guide: over PCIe a pipeline is faster than tensor parallelism."""
    plan = _thumb("llama-2-13b", "l40s-box").plan
    assert plan.tp == 1
    assert plan.pp > 1
