"""Rows of measurements become questions; figures here are invented or from the papers named."""

from pathlib import Path

import pytest

from cost_model.plans import Recompute, Software
from tests.benchmarks.rows import Row, Skipped, read_directory, translate
from tests.benchmarks.rows.assumptions import RULES, Ledger
from tests.benchmarks.rows.raw import RawRow

GPT_175B = {
    "source": "paper",
    "row_id": "175B",
    "model_name": "GPT 175B",
    "hidden": "12288",
    "layers": "96",
    "heads": "96",
    "vocab": "51200",
    "seq_len": "2048",
    "gated_mlp": "0",
    "gpu": "A100",
    "gpu_mem_gb": "80",
    "nodes": "8",
    "gpus_per_node": "8",
    "num_gpus": "64",
    "tp": "8",
    "pp": "8",
    "micro_batch": "1",
    "global_batch": "64",
    "precision": "fp16",
    "recompute": "full",
    "flash_attn": "0",
    "framework": "Megatron-LM",
    "step_time_s": "18.13",
    "oom": "0",
}


def row(**changes: str) -> Row:
    found = translate(RawRow(GPT_175B | changes))
    assert isinstance(found, Row), found
    return found


def skipped(**changes: str) -> str:
    found = translate(RawRow(GPT_175B | changes))
    assert isinstance(found, Skipped), found
    return found.reason


def test_missing_columns_are_filled_by_named_rules() -> None:
    found = row()
    layer = found.model.kinds[0]
    assert layer.mlp is not None
    assert layer.mlp.intermediate == 4 * 12288
    assert found.plan.dp == 1
    assert found.plan.grad_accum == 64
    assert {"ffn_is_4h", "kv_heads_are_heads", "dp_fills_the_job"} <= set(found.assumed)


def test_every_rule_that_is_used_must_be_written_down() -> None:
    with pytest.raises(KeyError):
        Ledger().assume("because I say so")
    assert all(reason for reason in RULES.values())


def test_parameters_of_gpt_175b_are_those_of_the_paper() -> None:
    # arXiv 2104.04473, table 1 and equation 2: 174.6 billion.
    assert row().model.params / 1e9 == pytest.approx(174.6, abs=0.1)


def test_output_matrix_is_untied_where_the_printed_count_says_so() -> None:
    tied = row(params_b="174.6").model
    untied = row(vocab="131072", params_b="177.2").model
    assert tied.tied_embeddings
    assert not untied.tied_embeddings


def test_hardware_flops_become_seconds_of_the_step() -> None:
    # arXiv 2104.04473: 96 B s l h^2 (1 + s/6h + V/16lh) per step, over the printed rate.
    found = row(step_time_s="", tflops_per_gpu="140", notes="hardware TFLOPs")
    flops = 96 * 64 * 2048 * 96 * 12288**2 * (1 + 2048 / 6 / 12288 + 51200 / 16 / 96 / 12288)
    assert found.measured.seconds == pytest.approx(flops / (64 * 140e12), rel=0.002)


def test_tokens_per_second_become_seconds_of_the_step() -> None:
    found = row(step_time_s="", tokens_per_s_per_gpu="100")
    assert found.measured.seconds == pytest.approx(64 * 2048 / (100 * 64))


def test_hardware_utilisation_gives_away_recomputation() -> None:
    assert row(recompute="none", mfu="0.30", hfu="0.40").plan.recompute is Recompute.FULL
    assert row(recompute="none", mfu="0.40", hfu="0.40").plan.recompute is Recompute.NONE


def test_a_rate_beyond_any_published_run_is_not_believed() -> None:
    assert row(step_time_s="8.0").measured.seconds is None


def test_steps_whose_padding_was_cut_away_are_not_compared() -> None:
    bert = {"model_name": "BERT-large", "framework": "PyTorch NGC (DDP)", "step_time_s": "100"}
    assert row(**bert, seq_len="512").measured.seconds is None
    assert row(**bert, seq_len="384").measured.seconds == 100


def test_an_uneven_batch_is_scaled_to_whole_micro_batches() -> None:
    alone = {"tp": "1", "pp": "1", "num_gpus": "8", "nodes": "1", "step_time_s": "300"}
    found = row(**alone, micro_batch="3", global_batch="64")
    assert found.plan.global_batch == 72
    assert found.measured.seconds == pytest.approx(300 * 72 / 64)


@pytest.mark.parametrize(
    ("framework", "changes", "software"),
    [
        ("Megatron-LM", {}, Software.MEGATRON),
        ("NeMo 24.07", {}, Software.MEGATRON),
        ("Megatron-DeepSpeed", {}, Software.MEGATRON_DEEPSPEED),
        ("HF Trainer + DeepSpeed", {"tp": "1", "pp": "1"}, Software.DEEPSPEED),
        ("Composer/llm-foundry PyTorch FSDP", {"tp": "1", "pp": "1"}, Software.FSDP),
        ("GPT-NeoX", {}, Software.MEGATRON_DEEPSPEED),
        ("LLaMA-Factory", {"tp": "1", "pp": "1", "sharding": "FSDP"}, Software.FSDP),
        ("a framework of next year", {}, Software.MEGATRON),
        ("a framework of next year", {"tp": "1", "pp": "1"}, Software.DEEPSPEED),
    ],
)
def test_frameworks_map_to_software(
    framework: str, changes: dict[str, str], software: Software
) -> None:
    assert row(framework=framework, **changes).plan.software is software


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_name": "WResNet", "hidden": ""}, "no transformer on text"),
        ({"model_name": "unheard of", "hidden": ""}, "model geometry not stated"),
        ({"gpu": "TPU v4"}, "GPU not in the catalogue"),
        ({"tp": "", "pp": ""}, "layout not stated"),
        ({"seq_len": ""}, "sequence length not stated"),
        ({"step_time_s": "", "oom": ""}, "nothing measured"),
        ({"tp": "5"}, "degrees do not multiply to the number of GPUs"),
        ({"notes": "SOURCE SAYS INVALID"}, "invalid by its own source"),
    ],
)
def test_rows_that_cannot_be_asked_say_why(changes: dict[str, str], reason: str) -> None:
    assert skipped(**changes) == reason


def test_a_known_name_gives_the_geometry() -> None:
    blank = {"hidden": "", "layers": "", "heads": "", "vocab": "", "gated_mlp": ""}
    found = row(model_name="Llama-2-7B", framework="DeepSpeed", **blank)
    assert found.model.params == 6_738_415_616  # the count of the published checkpoint


def test_memory_is_read_with_its_kind_and_rank() -> None:
    smi = row(peak_mem_gb="60", notes="mem = used/total as nvidia-smi prints").measured
    last = row(peak_mem_gb="60", notes="ON THE LAST RANK ONLY").measured
    reserved = row(peak_mem_gb="60", notes="peak RESERVED GiB").measured
    assert (smi.memory_kind, smi.memory_rank) == ("driver", "worst")
    assert (last.memory_kind, last.memory_rank) == ("allocated", "last")
    assert reserved.memory_kind == "reserved"
    assert smi.memory_bytes == 60 * 2**30


def test_a_run_that_died_has_no_time_and_no_memory() -> None:
    died = row(oom="1", peak_mem_gb="79").measured
    assert died.oom
    assert died.seconds is None
    assert died.memory_bytes is None


def test_the_network_is_read_from_the_interconnect() -> None:
    slow = row(interconnect="12x p3.2xlarge, delay 10ms  bandwidth 1Gbps").cluster.network
    assert (slow.kind, slow.gbps_per_port, slow.latency_us) == ("ethernet", 1.0, 10_000.0)
    assert row(interconnect="8x HDR IB per node").cluster.network.node_bytes_per_s == 200e9


def test_a_job_on_part_of_a_node_is_a_cluster_of_its_ranks() -> None:
    found = row(tp="4", pp="1", num_gpus="4", nodes="1", gpus_per_node="8", global_batch="4")
    assert found.cluster.gpus == 4


def test_a_directory_is_read_file_by_file(tmp_path: Path) -> None:
    lines = [",".join(GPT_175B), ",".join(GPT_175B.values())]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "b.csv").write_text("model_name,gpu\nGPT,A100\n", encoding="utf-8")
    kinds = [type(found) for found in read_directory(tmp_path)]
    assert kinds == [Row, Skipped]
    (tmp_path / "c.csv").write_bytes(b"\xef\xbb\xbfmodel_name,notes\nGPT,\xff\n")
    assert len(read_directory(tmp_path)) == 3
    long_cell = "y" * 200_000  # above the limit of the csv module
    (tmp_path / "D.CSV").write_text(f"Source , GPU\nx,{long_cell}\n", encoding="utf-8")
    broken = read_directory(tmp_path)[0]
    assert isinstance(broken, Skipped)
    assert broken.reason.startswith("file cannot be read")
    with pytest.raises(FileNotFoundError):
        read_directory(tmp_path / "nowhere")


def test_nothing_hangs_on_where_a_row_comes_from() -> None:
    renamed = row(source="elsewhere", row_id="7", url="")
    assert (renamed.model, renamed.plan, renamed.measured) == (
        row().model,
        row().plan,
        row().measured,
    )


def test_words_and_thousands_are_read_as_numbers() -> None:
    found = row(hidden="12,288", oom="yes", zero_stage="ZeRO-1", dp="1")
    assert found.model.hidden == 12288
    assert found.measured.oom
    assert found.plan.zero_stage == 1


@pytest.mark.parametrize(
    ("gpu", "name"),
    [
        ("A100-SXM4-40GB", "a100-40g-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("V100-PCIE-16GB", "v100-16g-pcie"),
        ("NVIDIA GeForce RTX 3090", "rtx-3090"),
        ("H20", "h20"),
        ("A10", "a10"),
        ("MI300X", "mi300x"),
    ],
)
def test_gpus_are_known_by_the_names_that_drivers_print(gpu: str, name: str) -> None:
    assert row(gpu=gpu, gpu_mem_gb="").cluster.node.gpu.name == name


def test_an_unlisted_network_is_read_from_its_kind_and_rate() -> None:
    network = row(interconnect="NVLink 4; 8x 400G RoCEv2").cluster.network
    assert (network.kind, network.node_bytes_per_s) == ("roce", 400e9)


def test_deterministic_tests_on_draco_store_their_scores() -> None:
    lts = {"framework": "Megatron-Core (LTS)", "flash_attn": ""}
    args = '{"transformer-impl": "transformer_engine", "deterministic-mode": true}'
    stated = row(**lts, notes=f"golden_values_lts_dgxa100_dracooci.json; args={args}")
    assert stated.training.attention == "fused_softmax"
    assert skipped(**lts, notes=f"golden_values_lts.json; args={args}").startswith("attention")


def test_a_time_that_its_own_authors_doubt_is_not_compared() -> None:
    found = row(notes='cell="36.37 s ??"; AUTHORS FLAG AS SUSPICIOUS (??)')
    assert found.measured.seconds is None
    assert found.measured.oom is False


def test_nanotron_ends_a_stage_with_the_layer_that_passes_its_share_of_the_cost() -> None:
    # layers of 4 h^2 + 3 h f = 113.2 million, an output matrix of 402.7: 15.8 layers of work each
    changes = {"hidden": "3072", "layers": "28", "heads": "24", "ffn_hidden": "8192"}
    more = {"vocab": "131072", "gated_mlp": "1", "tp": "1", "pp": "2", "framework": "nanotron v0.5"}
    found = row(**changes, **more)
    assert (found.plan.first_stage_layers, found.plan.last_stage_layers) == (16, 12)
    assert "stages_of_equal_cost" in found.assumed


def test_stages_are_as_the_notes_of_a_tuned_plan_have_them() -> None:
    found = row(tp="1", pp="2", layers="24", framework="Mist", notes="layer_partitions=[13, 11]")
    assert (found.plan.first_stage_layers, found.plan.last_stage_layers) == (13, 11)


def test_a_full_fine_tuning_that_holds_less_than_its_states_was_sharded() -> None:
    litgpt = {"framework": "LitGPT", "model_name": "llama-2-7b/full.yaml", "num_gpus": "4"}
    blank = dict.fromkeys(("tp", "pp", "nodes", "hidden", "layers", "heads", "vocab"), "")
    more = {"gpus_per_node": "4", "global_batch": "", "precision": "bf16-true", "step_time_s": ""}
    runs = [row(**litgpt, **blank, **more, peak_mem_gb=peak).plan.dp for peak in ("60", "30")]
    assert runs == [1, 4]


def test_a_pipeline_of_more_stages_than_layers_is_no_plan() -> None:
    assert skipped(layers="4", pp="8") == "more pipeline stages than layers"


def test_deepspeed_of_2021_waited_for_what_zero_3_gathers() -> None:
    old = {"zero_stage": "3", "tp": "1", "pp": "1", "framework": "DeepSpeed"}
    assert not row(**old, gpu="V100-SXM2", gpu_mem_gb="32").plan.overlap_comm
    assert row(**old).plan.overlap_comm


def test_zero_3_of_2021_is_known_by_its_framework_or_gpu() -> None:
    old = {"zero_stage": "3", "tp": "1", "pp": "1"}
    lightning = row(**old, framework="PyTorch Lightning deepspeed_stage_3")
    assert lightning.training.stack == "deepspeed_2021"
    assert row(**old, framework="DeepSpeed").training.stack is None
