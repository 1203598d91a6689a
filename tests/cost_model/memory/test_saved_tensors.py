"""Activations of Hugging Face's layers against what autograd really saves, on fake tensors."""

from typing import Any

import pytest

from cost_model.memory import detail
from cost_model.plans import Plan
from cost_model.specs import TrainingSpec, from_config
from tests.cost_model.memory.samples import dgx

TOKENS = 1024

LLAMA = {
    "vocab_size": 1000,
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
}
MIXTRAL = LLAMA | {"num_local_experts": 4}
GPT2 = {"n_embd": 1024, "n_head": 8, "n_positions": 1024, "vocab_size": 1000} | dict.fromkeys(
    ("resid_pdrop", "attn_pdrop", "embd_pdrop"), 0.0
)


def config(kind: str, fields: dict[str, Any], layers: int) -> Any:
    from transformers import CONFIG_MAPPING

    name = "n_layer" if kind == "gpt2" else "num_hidden_layers"
    return CONFIG_MAPPING[kind](**fields, **{name: layers}, use_cache=False)


def saved_bytes(kind: str, fields: dict[str, Any], attention: str, layers: int) -> int:
    """Bytes of distinct storages that the forward pass saves, parameters apart."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoModelForCausalLM

    with FakeTensorMode(allow_non_fake_inputs=True):
        torch.set_default_dtype(torch.bfloat16)
        try:
            net = AutoModelForCausalLM.from_config(
                config(kind, fields, layers), attn_implementation=attention
            )
        finally:
            torch.set_default_dtype(torch.float32)
        net.train()
        own = {t.untyped_storage()._cdata for t in (*net.parameters(), *net.buffers())}
        found: dict[int, tuple[int, object]] = {}

        def pack(tensor: Any) -> Any:
            storage = tensor.untyped_storage()
            if storage._cdata not in own:
                found[storage._cdata] = (storage.nbytes(), tensor)
            return tensor

        ids = torch.zeros((1, TOKENS), dtype=torch.int64)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            output = net(input_ids=ids, labels=ids)
        total = sum(n for n, _ in found.values())
        del output
    return total


def predicted_bytes(kind: str, fields: dict[str, Any], attention: str, layers: int) -> float:
    names = {"llama": "Llama", "mixtral": "Mixtral", "gpt2": "GPT2"}
    head = "LMHeadModel" if kind == "gpt2" else "ForCausalLM"
    said = config(kind, fields, layers).to_dict() | {"architectures": [names[kind] + head]}
    training = TrainingSpec(seq_len=TOKENS, global_batch=1, attention=attention)
    found = detail(from_config(said), dgx(), training, Plan())
    return next(m for m in found.moments if m.moment == "loss").categories["activations"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "fields", "attention", "tolerance"),
    [
        ("llama", LLAMA, "eager", 0.01),
        ("llama", LLAMA, "sdpa", 0.01),
        ("mixtral", MIXTRAL, "eager", 0.02),
        ("gpt2", GPT2, "sdpa", 0.08),  # GELU written out in Python
    ],
)
def test_a_layer_keeps_what_autograd_saves(
    kind: str, fields: dict[str, Any], attention: str, tolerance: float
) -> None:
    saved, predicted = (
        count(kind, fields, attention, 2) - count(kind, fields, attention, 1)
        for count in (saved_bytes, predicted_bytes)
    )
    if attention == "sdpa" and kind == "llama":
        saved -= 2 * TOKENS**2  # the causal mask, which CUDA's kernels do without
    assert predicted == pytest.approx(saved, rel=tolerance)
