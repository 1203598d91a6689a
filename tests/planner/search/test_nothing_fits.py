"""When no plan fits, that is a result: the nearest plans and the smallest changes that help."""

from dataclasses import replace

import pytest

from cost_model import catalogue
from planner.candidate import GIB
from planner.search import SearchResult, search
from tests.planner.requests import resolve

FOUR_BITS = {"quantized_base": True}


@pytest.fixture(scope="module")
def tight() -> SearchResult:
    """70B with all its weights on eight 40 GB GPUs, without offload."""
    return search(
        resolve("llama-2-70b", "dgx-a100-40g", seq_len=4096, allow={"offload": False}, keep=5)
    )


def test_no_candidate_is_ranked_and_the_miss_is_told_in_bytes(tight: SearchResult) -> None:
    """16 bytes a parameter over eight GPUs are 128 GiB of the 39 there are."""
    assert tight.candidates == ()
    assert tight.certificate.fitting == 0
    assert tight.nothing_fits is not None
    least = 69e9 * 16 / 8 - 40 * GIB
    assert tight.nothing_fits.missing_bytes > 0.9 * least


def test_the_nearest_plans_come_nearest_first(tight: SearchResult) -> None:
    assert tight.nothing_fits is not None
    totals = [c.memory.total_bytes for c in tight.nothing_fits.nearest]
    assert totals == sorted(totals)
    assert not any(c.fits for c in tight.nothing_fits.nearest)


def test_every_change_offered_was_searched_and_fits(tight: SearchResult) -> None:
    assert tight.nothing_fits is not None
    assert tight.nothing_fits.changes
    for change in tight.nothing_fits.changes:
        assert change.candidate.fits
        assert change.patch


def test_the_node_count_offered_is_the_smallest_that_fits(tight: SearchResult) -> None:
    assert tight.nothing_fits is not None
    (nodes,) = [
        c.patch["cluster"]["nodes"]
        for c in tight.nothing_fits.changes
        if "nodes" in c.patch.get("cluster", {})
    ]

    def fits(count: int) -> bool:
        asked = resolve(
            "llama-2-70b", "dgx-a100-40g", nodes=count, seq_len=4096, allow={"offload": False}
        )
        return bool(search(asked).candidates)

    assert fits(nodes)
    assert not fits(nodes - 1)


def test_offload_is_offered_where_it_was_forbidden(tight: SearchResult) -> None:
    assert tight.nothing_fits is not None
    patches = [c.patch for c in tight.nothing_fits.changes]
    assert {"search": {"allow": {"offload": True}}} in patches


def test_what_stands_in_the_way_is_told_in_a_sentence(tight: SearchResult) -> None:
    assert tight.nothing_fits is not None
    assert "GiB on stage" in tight.nothing_fits.why


def test_host_memory_that_is_short_too_is_told_beside_that_of_the_gpu() -> None:
    found = search(resolve("llama-65b", "cpu", seq_len=128, keep=1)).nothing_fits
    assert found is not None
    memory = found.nearest[0].memory
    short = memory.total_bytes - memory.capacity_bytes
    short += memory.host_bytes - memory.host_capacity_bytes
    assert found.missing_bytes == pytest.approx(short)
    assert "GiB on stage" in found.why
    assert "It also needs" in found.why
    assert "of host RAM" in found.why


def test_a_plan_that_only_fits_too_rarely_is_offered_with_its_risk() -> None:
    """The best plan of the plain request is asked to fit more surely than it does."""
    free = resolve("llama-2-13b", nodes=2, min_fits_probability=0.5, keep=400, seq_len=4096)
    unsure = [c for c in search(free).candidates if c.fits_probability < 0.75]
    assert unsure
    plan = unsure[0].plan.model_dump(mode="json")
    kept = ("software", "tp", "pp", "sp", "zero_stage", "recompute", "micro_batch", "nodes")
    fixed = {name: plan[name] for name in kept} | {"recompute_layers": plan["recompute_layers"]}
    fixed |= {n: plan[n] for n in ("offload_optimizer", "offload_param", "hpz", "chunked_loss")}
    asked = resolve("llama-2-13b", nodes=2, seq_len=4096, min_fits_probability=0.99, fixed=fixed)
    found = search(asked).nothing_fits
    assert found is not None
    assert "is demanded" in found.why
    assert "GiB of a host" in found.why
    assert {"search": {"min_fits_probability": 0.5}} in [c.patch for c in found.changes]


def test_adapters_are_not_offered_for_a_pre_training() -> None:
    """Two trillion tokens for 70 billion parameters: Llama 2's own budget (arXiv 2307.09288)."""
    asked = {"nodes": 8, "global_batch": 1024, "training": {"tokens": 2 * 10**12}}
    found = search(resolve("llama-2-70b", **asked, deadline_days=60)).nothing_fits  # type: ignore[arg-type]
    assert found is not None
    assert found.changes
    assert not any("lora" in c.patch.get("training", {}) for c in found.changes)


def test_adapters_go_last_where_they_are_offered(tight: SearchResult) -> None:
    assert tight.nothing_fits is not None
    adapters = ["lora" in c.patch.get("training", {}) for c in tight.nothing_fits.changes]
    assert any(adapters)
    assert adapters == sorted(adapters)


def test_a_four_bit_70b_for_which_24_gib_are_too_few_is_offered_a_card_of_48() -> None:
    """QLoRA's own claim: 65 billion parameters on one GPU of 48 GB (arXiv 2305.14314)."""
    asked = resolve(
        "llama-3-70b", "4090-box", seq_len=512, global_batch=8, training={"lora": FOUR_BITS}
    )
    node = asked.cluster.node.model_copy(update={"gpus_per_node": 2})
    two = replace(asked, cluster=asked.cluster.model_copy(update={"node": node}))
    found = search(two).nothing_fits
    assert found is not None
    (card,) = [c for c in found.changes if "gpu" in c.patch.get("cluster", {})]
    assert 40 < catalogue.gpu(card.patch["cluster"]["gpu"]).memory_gib < 50
