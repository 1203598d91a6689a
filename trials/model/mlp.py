"""Dense feed-forward sub-layers."""

from torch import Tensor, nn

from cost_model.specs import Mlp
from trials.model.activations import activation
from trials.model.build import Build
from trials.model.lora import linear_column, linear_row


class FeedForward(nn.Module):
    """down(act(up(x))), or down(act(gate(x)) * up(x)) where gated (arXiv 2002.05202)."""

    def __init__(self, build: Build, spec: Mlp):
        super().__init__()
        hidden, width = build.model.hidden, spec.intermediate
        self.gate_proj = (
            linear_column(build, "mlp", hidden, width, spec.bias) if spec.gated else None
        )
        self.up_proj = linear_column(build, "mlp", hidden, width, spec.bias)
        self.down_proj = linear_row(build, "mlp", width, hidden, spec.bias)
        self.act = activation(build.model.activation)

    def forward(self, x: Tensor) -> Tensor:
        """x: [..., hidden]."""
        if self.gate_proj is None:
            y: Tensor = self.down_proj(self.act(self.up_proj(x)))
        else:
            y = self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))
        return y
