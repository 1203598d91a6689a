"""What an architecture's reader hands over: its layers one by one, and what stands around them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from cost_model.specs.architectures.fields import Fields
from cost_model.specs.model import Layer

Position = Literal["rotary", "learned", "alibi", "relative", "none"]
NormKind = Literal["rmsnorm", "layernorm"]
Family = Literal["decoder", "encoder", "encoder_decoder"]


@dataclass(frozen=True)
class Head:
    """What follows the last layer: its parameters, and the weights each token multiplies there."""

    params: int
    matmul: int = 0
    tied: bool = False


TaskHead = Callable[[Fields, "Stack", str], Head | None]
"""The head that a class (its name) puts on a stack; None where the class is not supported."""


@dataclass(frozen=True, kw_only=True)
class Stack:
    """A model without its task: the head is put on by `heads.head`, or by `task`."""

    hidden: int
    vocab: int
    layers: Sequence[Layer]
    """One for each layer, encoder first."""
    embedding_params: int
    """Tables and what follows them before the first layer."""
    final_params: int
    """Norms and such after the last layer."""
    tied: bool
    head_bias: bool = False
    """Whether the output matrix has a bias of one number a token of the vocabulary."""
    head_width: int | None = None
    """Input width of the output matrix where it is not the hidden size."""
    head_vocab: int | None = None
    """Output width of the output matrix where it is not the vocabulary."""
    max_seq_len: int | None
    norm: NormKind = "rmsnorm"
    position: Position = "rotary"
    activation: str = "silu"
    dropout: float = 0.0
    family: Family = "decoder"
    encoder_layers: int = 0
    task: TaskHead | None = None
    """Encoders and encoder-decoders have heads of their own."""
    notes: tuple[str, ...] = ()


Reader = Callable[[Fields], Stack]


@dataclass(frozen=True)
class Architecture:
    """A supported `model_type`: the class whose parameters are counted, and its reader."""

    model_type: str
    default_class: str
    """The class that is meant where the config names none."""
    read: Reader


_TABLE: dict[str, Architecture] = {}


def architecture(model_type: str, default_class: str) -> Callable[[Reader], Reader]:
    """Registers a reader for a `model_type`."""

    def register(read: Reader) -> Reader:
        if model_type in _TABLE:
            raise ValueError(f"{model_type} is registered twice")
        _TABLE[model_type] = Architecture(model_type, default_class, read)
        return read

    return register


def registered() -> dict[str, Architecture]:
    """Every supported architecture by its `model_type`."""
    return _TABLE
