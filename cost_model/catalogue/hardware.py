"""GPUs, links, networks and machines by name, from the data files beside this module."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from cost_model.specs.cluster import ClusterSpec, Gpu, Link, Network, Node, Nvme

_ALIASES = {
    "v100-node": "p3dn",
    "h100-sxm": "dgx-h100",
    "cpu": "local-cpu",
    "a100-pcie": "a100-80g-pcie",
}
"""Other names that people use for a machine."""


@cache
def _table(name: str) -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath(f"{name}.toml").read_text("utf-8"))


def _pick(kind: str, table: dict[str, Any], name: str) -> dict[str, Any]:
    try:
        return dict(table[name])
    except KeyError:
        raise KeyError(f"no {kind} named {name!r}; known: {', '.join(sorted(table))}") from None


def gpu_names() -> tuple[str, ...]:
    """Names of the GPUs in the catalogue."""
    return tuple(_table("gpus"))


def gpu(name: str) -> Gpu:
    """The GPU of that name; KeyError names the known ones."""
    return Gpu.model_validate(
        {"name": name, "bf16_tflops": None} | _pick("GPU", _table("gpus"), name)
    )


def link_names() -> tuple[str, ...]:
    """Names of the intra-node links in the catalogue."""
    return tuple(_table("links")["link"])


def network_names() -> tuple[str, ...]:
    """Names of the inter-node networks in the catalogue."""
    return tuple(_table("links")["network"])


def link(name: str) -> Link:
    """The intra-node link of that name; KeyError names the known ones."""
    fields = _pick("link", _table("links")["link"], name)
    fields.pop("source")
    return Link.model_validate(fields)


def network(name: str) -> Network:
    """The inter-node network of that name; KeyError names the known ones."""
    fields = _pick("network", _table("links")["network"], name)
    fields.pop("source")
    return Network.model_validate(fields)


def cluster_names() -> tuple[str, ...]:
    """Names of the machines in the catalogue, aliases last."""
    return (*_table("clusters"), *_ALIASES)


def cluster_source(name: str) -> str:
    """Where the figures of a machine come from."""
    return str(_pick("cluster", _table("clusters"), _ALIASES.get(name, name))["source"])


def cluster(name: str, nodes: int = 1) -> ClusterSpec:
    """`nodes` machines of that name on the network they come with.

    KeyError names the known ones; pydantic refuses a node count below one.
    """
    fields = _pick("cluster", _table("clusters"), _ALIASES.get(name, name))
    fields.pop("source")
    chip = gpu(fields.pop("gpu"))
    nvme = fields.pop("nvme", None)
    net = network(fields.pop("network"))
    node = Node(
        gpu=chip,
        link=link(fields.pop("link")),
        nvme=Nvme.model_validate(nvme) if nvme else None,
        **fields,
    )
    return ClusterSpec(
        name=name, node=node, nodes=nodes, network=net, usd_per_gpu_hour=chip.usd_per_hour
    )
