"""What an exporter returns, and what it is given."""

import base64
from collections.abc import Callable
from dataclasses import dataclass, field

from cost_model.memory.layout import stage_sizes
from cost_model.plans import Plan, Recompute, Software
from cost_model.specs import ClusterSpec, ModelSpec, TrainingSpec
from planner.export.options import ExportOptions


class NotExportable(ValueError):  # noqa: N818 - the plan is fine; the format is for other software
    """The format cannot express the plan; the message says why and what can."""


@dataclass(frozen=True)
class Planned:
    """A plan with everything that it was made for."""

    model: ModelSpec
    cluster: ClusterSpec
    training: TrainingSpec
    plan: Plan
    options: ExportOptions = field(default_factory=ExportOptions)

    @property
    def gpus_per_node(self) -> int:
        """Ranks on each node: the last one may have fewer only where there is one node."""
        return min(self.cluster.node.gpus_per_node, self.plan.world_size)

    @property
    def nodes(self) -> int:
        """Nodes that the ranks fill."""
        return -(-self.plan.world_size // self.gpus_per_node)

    @property
    def stage_layers(self) -> tuple[int, ...]:
        """Layers of every pipeline stage."""
        plan = self.plan
        ends = plan.first_stage_layers, plan.last_stage_layers
        return tuple(stage_sizes(self.model.layers, plan.pp, *ends, plan.placement))

    @property
    def host_groups(self) -> tuple[str, ...]:
        """The group of each node, where the plan's stages lie on groups of different ones."""
        plan, groups = self.plan, self.cluster.groups
        stages = [count for count, _ in plan.placement.groups(plan.pp, self.model.layers)]
        if not plan.placement or len(stages) != len(groups):
            return ()
        width = plan.world_size // plan.pp
        counts = [count * width // self.gpus_per_node for count in stages]
        return tuple(g.name for g, n in zip(groups, counts, strict=True) for _ in range(n))

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the nodes: the user's, or node-0, node-1, ...; groups of nodes in the order of
        the cluster's name, which is that of the stages."""
        given = self.options.hosts[: self.nodes]
        return given + tuple(f"node-{i}" for i in range(len(given), self.nodes))

    @property
    def trainer_notes(self) -> tuple[str, ...]:
        """What a trainer that checkpoints whole layers or none makes of the plan."""
        if self.plan.recompute != Recompute.MLP:
            return ()
        return (
            "The plan recomputes the feed-forward blocks alone; gradient_checkpointing takes whole "
            "layers here, with less memory and more time than the plan says. The example's "
            "train.py recomputes as the plan does.",
        )

    def only(self, what: str, *software: Software) -> None:
        """Raises NotExportable where the plan is for other software."""
        if self.plan.software not in software:
            names = " or ".join(s.name.lower() for s in software)
            raise NotExportable(
                f"{what} is for {names} plans; this one is for {self.plan.software.name.lower()}"
            )


@dataclass(frozen=True)
class Exported:
    """The files of one format."""

    main: str
    """Name of the file that matters most."""
    files: dict[str, str | bytes]
    """Relative path to content; text is UTF-8."""
    notes: tuple[str, ...] = ()
    """Where the format does something else than the plan."""

    @property
    def media_type(self) -> str:
        """Media type of the main file."""
        ending = self.main.rsplit(".", 1)[-1]
        return {
            "json": "application/json",
            "yaml": "application/yaml",
            "zip": "application/zip",
            "md": "text/markdown",
        }.get(ending, "text/plain")

    def to_json(self) -> dict[str, object]:
        """Files as text; binary ones in base64."""
        return {
            "main": self.main,
            "notes": list(self.notes),
            "files": {
                name: content
                if isinstance(content, str)
                else {"base64": base64.b64encode(content).decode()}
                for name, content in self.files.items()
            },
        }


Exporter = Callable[[Planned], Exported]
