"""meshwright models, meshwright hardware: what is known by name."""

import json
from typing import Annotated

import typer
from rich import box
from rich.table import Table

from api.cli.table import console
from api.schemas.catalogue import known_hardware, known_models

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="left" if i < 2 else "right")
    return table


def models(as_json: Json = False) -> None:
    """List model presets."""
    known = known_models()
    if as_json:
        typer.echo(json.dumps(known.model_dump(mode="json"), indent=2))
        return
    table = _table("preset", "architecture", "parameters", "layers", "hidden", "vocab", "sequence")
    for m in known.items:
        table.add_row(
            m.preset,
            m.architecture,
            f"{m.parameters:,}",
            str(m.layers),
            str(m.hidden),
            str(m.vocab),
            "any" if m.max_seq_len is None else str(m.max_seq_len),
        )
    console().print(table)


def hardware(as_json: Json = False) -> None:
    """List machines and GPUs."""
    known = known_hardware()
    if as_json:
        typer.echo(json.dumps(known.model_dump(mode="json"), indent=2))
        return
    table = _table("preset", "GPUs", "GPU GiB", "link", "network", "host GiB")
    for c in known.clusters:
        node, network = c.spec.node, c.spec.network
        table.add_row(
            c.preset,
            f"{c.gpus_per_node} x {c.gpu}",
            f"{node.gpu.memory_gib:.1f}",
            f"{node.link.kind} {node.link.bandwidth_gb_per_s:.0f} GB/s",
            f"{network.kind} {network.ports_per_node} x {network.gbps_per_port:.0f} Gbit/s",
            f"{node.host_ram_gib:.0f}",
        )
    console().print(table)
