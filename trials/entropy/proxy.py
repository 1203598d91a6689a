"""Trains a small mixture under one bonus weight and one capacity factor, and reports each step."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from cost_model.specs import ModelSpec
from cost_model.specs.architectures import from_config
from cost_model.specs.frozen import Frozen
from trials.entropy.bonus import Over, RouterEntropy
from trials.entropy.language import SkewedLanguage
from trials.entropy.load import mean_load
from trials.result import ExpertLoad


class Point(Frozen):
    """What the search varies."""

    weight: float
    """Of the entropy bonus, nats of loss a nat of entropy."""
    capacity_factor: float = 0.0
    """0 is dropless, as in a plan."""
    over: Over = "mean"


@dataclass(frozen=True)
class StepSeen:
    """One optimizer step."""

    loss: float
    """Of the task, without the bonus."""
    load: ExpertLoad


@dataclass(frozen=True)
class Proxy:
    """A mixture small enough for a study on a processor.

    It has the experts and the choices a token of the model that is meant; width and depth are
    small. What carries over is the balance of load against loss, in nats.
    """

    experts: int = 8
    top_k: int = 2
    hidden: int = 32
    layers: int = 1
    width: int = 32
    sequences: int = 32
    length: int = 16
    learning_rate: float = 1e-2
    clip: float = 1.0
    """Global norm of the gradient, as in exported configs."""
    language: SkewedLanguage = field(default_factory=SkewedLanguage)

    @classmethod
    def like(cls, model: ModelSpec) -> "Proxy":
        """With the experts of a model; ValueError for one without."""
        moe = next((kind.moe for kind in model.kinds if kind.moe is not None), None)
        if moe is None:
            raise ValueError(f"{model.name} has no experts")
        return cls(experts=moe.experts, top_k=moe.top_k)

    @property
    def model(self) -> ModelSpec:
        """A small Mixtral."""
        return from_config(
            {
                "model_type": "mixtral",
                "hidden_size": self.hidden,
                "intermediate_size": self.width,
                "num_hidden_layers": self.layers,
                "num_attention_heads": 2,
                "num_key_value_heads": 2,
                "vocab_size": self.language.vocab,
                "num_local_experts": self.experts,
                "num_experts_per_tok": self.top_k,
                "tie_word_embeddings": False,
            }
        )

    def train(self, point: Point, seed: int) -> Iterator[StepSeen]:
        """Trains step after step without end; the same point and seed give the same steps."""
        from trials.model import Build, build_model

        language, build = self.language, Build(self.model, capacity_factor=point.capacity_factor)
        model = build_model(build, seed=seed)
        optimizer = torch.optim.Adam(model.parameters(), lr=self.learning_rate, fused=True)
        rules, draw = language.rules(), torch.Generator().manual_seed(seed)
        with RouterEntropy(point.weight, point.over).watching(model) as bonus:
            while True:
                ids = language.batch(rules, self.sequences, self.length, draw)
                seen, labels = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
                bonus.label(seen // language.symbols, language.domains)
                loss = model(seen, labels)
                (loss + bonus.take_loss()).backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
                optimizer.step()
                optimizer.zero_grad()
                loads = bonus.take_load().values()
                yield StepSeen(float(loss.detach()), mean_load(list(loads)))
