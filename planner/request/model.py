"""The model part of a request: a preset, a Hugging Face config.json, or explicit geometry."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from pydantic import AliasChoices, ValidationError, model_validator

from cost_model import catalogue
from cost_model.specs import ModelGeometry, ModelSpec, SpecError, from_config
from cost_model.specs.frozen import Frozen
from planner.errors import Problem, RequestError
from planner.request.pointers import did_you_mean, problems_of, short

_CONFIG_KEYS = {"model_type", "architectures", "text_config"}


def _geometry_names() -> set[str]:
    names: set[str] = set()
    for name, field in ModelGeometry.model_fields.items():
        aliases = field.validation_alias
        names |= {name}
        if isinstance(aliases, AliasChoices):
            names |= {str(alias) for alias in aliases.choices}
    return names - {"name"}


class ModelRequest(Frozen):
    """Exactly one of three ways to name a model.

    Also accepted: a bare preset name, a bare config.json, bare geometry.
    """

    preset: str | None = None
    config: dict[str, Any] | None = None
    """A Hugging Face config.json."""
    geometry: dict[str, Any] | None = None
    """Fields of ModelGeometry: hidden, layers and heads are enough."""

    @model_validator(mode="before")
    @classmethod
    def _recognise(cls, value: object) -> object:
        if isinstance(value, str):
            return {"preset": value}
        if not isinstance(value, Mapping) or set(value) & set(cls.model_fields):
            return value
        if set(value) & _CONFIG_KEYS:
            return {"config": dict(value)}
        if set(value) & _geometry_names():
            return {"geometry": dict(value)}
        return value

    @model_validator(mode="after")
    def _one(self) -> Self:
        if sum(v is not None for v in (self.preset, self.config, self.geometry)) != 1:
            raise ValueError("give exactly one of preset, config (a config.json) and geometry")
        return self

    def spec(self) -> ModelSpec:
        """The model; RequestError points into the part that is wrong."""
        if self.preset is not None:
            if self.preset not in catalogue.model_names():
                hint = did_you_mean(self.preset, catalogue.model_names())
                raise RequestError(
                    [Problem("/model/preset", f"no model preset is named {self.preset!r}", hint)]
                )
            return catalogue.model(self.preset)
        try:
            if self.config is not None:
                return from_config(self.config)
            return ModelGeometry.model_validate(self.geometry).spec()
        except SpecError as error:
            given = f"got {short(error.given)}"
            where = f"/model/config{error.pointer}"
            raise RequestError([Problem(where, given, error.wanted)]) from error
        except ValidationError as error:
            problems = problems_of(error.errors(), ModelGeometry)
            raise RequestError(
                [replace(p, pointer=f"/model/geometry{p.pointer}") for p in problems]
            ) from error
