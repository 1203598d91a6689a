"""The cluster part of a request: a preset with a node count, everything explicit, or a mix."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from cost_model import catalogue
from cost_model.specs import ClusterSpec, Gpu, Link, Network, Node, Nvme
from cost_model.specs.frozen import LEAST, MOST, MOST_COUNT, Frozen
from planner.errors import Problem, RequestError
from planner.groups import MOST_GROUPS, options
from planner.request.pointers import did_you_mean

_TYPICAL_LINK = {
    "nvswitch": "nvlink3",
    "nvlink": "nvlink3-bridge",
    "pcie": "pcie4",
    "memory": "memory",
    "none": "memory",
}
_TYPICAL_NETWORK = {
    "infiniband": "ib-hdr-8",
    "roce": "roce-200-8",
    "ethernet": "ethernet-100",
    "efa": "efa-400",
    "omnipath": "omnipath-4",
    "none": "none",
}
"""The entry of the catalogue whose latency is taken where the request gives none."""


def _named(
    what: str, look_up: Callable[[str], Any], names: Callable[[], Iterable[str]]
) -> Callable[[object], object]:
    def parse(value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return look_up(value).model_dump()
        except KeyError:
            hint = did_you_mean(value, names())
            raise ValueError(f"no {what} is named {value!r}; {hint}") from None

    return parse


class LinkRequest(Frozen):
    """The link between GPUs of one node."""

    kind: Literal["nvswitch", "nvlink", "pcie", "none", "memory"]
    bandwidth_gb_per_s: float | None = Field(default=None, ge=LEAST, le=MOST)
    """Per GPU and direction; for pcie the default is `pcie_gb_per_s`."""
    latency_us: float | None = Field(default=None, ge=0, le=MOST)
    nvlink_group: int | None = Field(default=None, ge=1, le=MOST_COUNT)

    def spec(self, pcie_gb_per_s: float) -> Link:
        """The link with its defaults filled in."""
        bandwidth = self.bandwidth_gb_per_s
        if bandwidth is None and self.kind in {"nvswitch", "nvlink"}:
            raise RequestError(
                [
                    Problem(
                        "/cluster/link/bandwidth_gb_per_s",
                        f"a link of kind {self.kind} without its bandwidth",
                        "give gigabytes per second, per GPU and direction (A100: 300, H100: 450)",
                    )
                ]
            )
        latency = (
            catalogue.link(_TYPICAL_LINK[self.kind]).latency_us
            if self.latency_us is None
            else self.latency_us
        )
        return Link(
            kind=self.kind,
            bandwidth_gb_per_s=bandwidth or pcie_gb_per_s,
            latency_us=latency,
            nvlink_group=self.nvlink_group,
        )


class NetworkRequest(Frozen):
    """The network between nodes."""

    kind: Literal["infiniband", "roce", "ethernet", "efa", "omnipath", "none"]
    gbps_per_port: float = Field(ge=LEAST, le=MOST)
    ports_per_node: int = Field(default=1, ge=1, le=MOST_COUNT)
    latency_us: float | None = Field(default=None, ge=0, le=MOST)

    def spec(self) -> Network:
        """The network with its defaults filled in."""
        values = self.model_dump()
        if self.latency_us is None:
            values["latency_us"] = catalogue.network(_TYPICAL_NETWORK[self.kind]).latency_us
        return Network(**values)


_GpuField = Annotated[
    Gpu,
    BeforeValidator(
        _named("GPU", catalogue.gpu, catalogue.gpu_names), json_schema_input_type=Gpu | str
    ),
]
_LinkField = Annotated[
    LinkRequest,
    BeforeValidator(
        _named("link", catalogue.link, catalogue.link_names),
        json_schema_input_type=LinkRequest | str,
    ),
]
_NetworkField = Annotated[
    NetworkRequest,
    BeforeValidator(
        _named("network", catalogue.network, catalogue.network_names),
        json_schema_input_type=NetworkRequest | str,
    ),
]


class ClusterRequest(Frozen):
    """A preset and a node count; or the parts; or a preset with some parts replaced."""

    preset: str | None = None
    nodes: int = Field(default=1, ge=1, le=MOST_COUNT)
    name: str | None = None
    gpu: _GpuField | None = None
    """A name of the catalogue, or the data sheet."""
    gpus_per_node: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    link: _LinkField | None = None
    """A name of the catalogue, or its figures."""
    network: _NetworkField | None = None
    """A name of the catalogue, or its figures."""
    pcie_gb_per_s: float | None = Field(default=None, ge=LEAST, le=MOST)
    """Host to device, per GPU and direction; that of PCIe 4.0 x16 where not given."""
    host_ram_gib: float | None = Field(default=None, ge=LEAST, le=MOST)
    cpu_cores: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    sockets: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    host_gb_per_s_per_socket: float | None = Field(default=None, ge=LEAST, le=MOST)
    nvme: Nvme | None = None
    usd_per_gpu_hour: float | None = Field(default=None, ge=LEAST, le=MOST)
    groups: tuple["ClusterRequest", ...] = Field(default=(), max_length=MOST_GROUPS)
    """Node groups with different GPUs; nothing else is given beside them."""

    @model_validator(mode="before")
    @classmethod
    def _bare_name(cls, value: object) -> object:
        return {"preset": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _preset_or_parts(self) -> Self:
        if self.groups:
            if self.model_fields_set - {"groups", "name"}:
                raise ValueError("give the parts inside each of the groups, not beside them")
            if any(group.groups for group in self.groups):
                raise ValueError("groups have no groups of their own")
            return self
        if self.preset is None and (self.gpu is None or self.gpus_per_node is None):
            raise ValueError("give a preset, or at least gpu and gpus_per_node")
        return self

    def spec(self) -> ClusterSpec:
        """The cluster; RequestError points to the part that is unknown or missing.

        Of several groups it is the one that all of them make together, or the largest group where
        they cannot.
        """
        if self.groups:
            whole = options(self.group_specs()).clusters
            return max(whole, key=lambda cluster: cluster.gpus)
        if self.preset is not None:
            return self._from_preset(self.preset)
        return self._from_parts()

    def group_specs(self) -> tuple[ClusterSpec, ...]:
        """The groups, each a cluster of its own, none named as another; empty without groups."""
        specs = []
        problems: list[Problem] = []
        for number, group in enumerate(self.groups):
            try:
                specs.append(group.spec())
            except RequestError as error:
                problems += [
                    replace(
                        p, pointer=p.pointer.replace("/cluster", f"/cluster/groups/{number}", 1)
                    )
                    for p in error.problems
                ]
        if problems:
            raise RequestError(problems)
        names = [spec.name for spec in specs]
        return tuple(
            spec
            if names.count(spec.name) == 1
            else spec.model_copy(update={"name": f"{spec.name} ({number + 1})"})
            for number, spec in enumerate(specs)
        )

    def _from_preset(self, preset: str) -> ClusterSpec:
        if preset not in catalogue.cluster_names():
            hint = did_you_mean(preset, catalogue.cluster_names())
            raise RequestError(
                [Problem("/cluster/preset", f"no cluster preset is named {preset!r}", hint)]
            )
        base = catalogue.cluster(preset, self.nodes)
        node = base.node.model_copy(update=self._node_parts(base.node))
        parts: dict[str, Any] = {"node": node}
        if self.name is not None:
            parts["name"] = self.name
        if self.network is not None:
            parts["network"] = self.network.spec()
        if self.gpu is not None:
            parts["usd_per_gpu_hour"] = self.gpu.usd_per_hour
        if self.usd_per_gpu_hour is not None:
            parts["usd_per_gpu_hour"] = self.usd_per_gpu_hour
        return base.model_copy(update=parts)

    def _node_parts(self, node: Node) -> dict[str, Any]:
        parts: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "gpus_per_node",
                "pcie_gb_per_s",
                "host_ram_gib",
                "cpu_cores",
                "sockets",
                "host_gb_per_s_per_socket",
                "nvme",
            )
            if name in self.model_fields_set
            and (name == "nvme" or getattr(self, name) is not None)  # null: the node has no flash
        }
        if self.gpu is not None:
            parts["gpu"] = self.gpu
        if self.link is not None:
            parts["link"] = self.link.spec(self.pcie_gb_per_s or node.pcie_gb_per_s)
        return parts

    def _from_parts(self) -> ClusterSpec:
        per_node = self.gpus_per_node or 1
        missing = []
        if self.link is None and per_node > 1:
            missing.append(("link", f"{per_node} GPUs a node and no link between them"))
        if self.network is None and self.nodes > 1:
            missing.append(("network", f"{self.nodes} nodes and no network between them"))
        if self.host_ram_gib is None:
            missing.append(("host_ram_gib", "the host's RAM is missing"))
        if missing:
            raise RequestError(
                [Problem(f"/cluster/{name}", given, f"give {name}") for name, given in missing]
            )
        gpu = self.gpu
        assert gpu is not None
        pcie = self.pcie_gb_per_s or catalogue.link("pcie4").bandwidth_gb_per_s
        link = self.link or LinkRequest(kind="none")
        network = self.network or NetworkRequest(kind="none", gbps_per_port=1)
        node = Node(
            gpu=gpu,
            gpus_per_node=per_node,
            link=link.spec(pcie),
            pcie_gb_per_s=pcie,
            host_ram_gib=self.host_ram_gib or 1.0,
            cpu_cores=self.cpu_cores or 8 * per_node,
            sockets=self.sockets or (2 if per_node > 1 else 1),
            host_gb_per_s_per_socket=self.host_gb_per_s_per_socket or 204.8,
            nvme=self.nvme,
        )
        return ClusterSpec(
            name=self.name or f"{self.nodes}x{per_node} {gpu.name}",
            node=node,
            nodes=self.nodes,
            network=network.spec(),
            usd_per_gpu_hour=self.usd_per_gpu_hour or gpu.usd_per_hour,
        )
