"""Small models whose parameters can be counted by hand."""

from cost_model.specs import Attention, Layer, Mlp, ModelSpec, Moe


def decoder(
    *,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 4,
    width: int = 96,
    vocab: int = 128,
    tied: bool = False,
    experts: int = 0,
    top_k: int = 2,
) -> ModelSpec:
    """A Llama-shaped decoder; with experts a Mixtral-shaped one."""
    head = hidden // heads
    projections = 2 * hidden * heads * head + 2 * hidden * kv_heads * head
    feed = 3 * hidden * width
    layer = Layer(
        attention=Attention(heads=heads, kv_heads=kv_heads, head_dim=head, value_head_dim=head),
        mlp=None if experts else Mlp(intermediate=width, gated=True),
        moe=Moe(experts=experts, top_k=top_k, intermediate=width) if experts else None,
        norms=2,
        tp_sharded_params=projections + (0 if experts else feed),
        replicated_params=2 * hidden + hidden * experts,
        expert_params=feed * experts,
        matmul_params=projections + (hidden * experts if experts else feed),
    )
    return ModelSpec(
        name="small",
        architecture="explicit",
        hidden=hidden,
        vocab=vocab,
        kinds=(layer,),
        layer_pattern=(0,) * layers,
        tied_embeddings=tied,
        embedding_params=vocab * hidden,
        head_params=hidden + (0 if tied else vocab * hidden),
        head_matmul_params=vocab * hidden,
    )
