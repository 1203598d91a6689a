"""Options that describe a request, shared by every command that takes one."""

import functools
import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from api.other_fields import whole, with_fields
from api.unique_json import parsed_json
from planner.errors import Problem, RequestError

MODEL, RUN = "Model and cluster", "Training run"


def _read(path: Path, pointer: str) -> Any:
    try:
        return parsed_json(path.read_text("utf-8"), pointer)
    except RequestError:
        raise
    except OSError as error:
        wanted = "give a preset name or a readable file"
        raise RequestError([Problem(pointer, f"{path} cannot be read", wanted)]) from error
    except ValueError as error:
        raise RequestError([Problem(pointer, f"{path}: {error}", "give a JSON file")]) from error


def _named(value: str, pointer: str) -> Any:
    """A preset's name as it is, a file's content where one is meant."""
    if value.endswith(".json") or "/" in value:
        return _read(Path(value), pointer)
    return {"preset": value}


def _cluster(value: str, **parts: int | None) -> Any:
    cluster = _named(value, "/cluster")
    if isinstance(cluster, dict):
        cluster = cluster | {name: part for name, part in parts.items() if part is not None}
    return cluster


def _options(
    *,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            help="Preset name, or path of a Hugging Face config.json.",
            rich_help_panel=MODEL,
        ),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster",
            "-c",
            help="Preset name, or path of a JSON file with the API's `cluster`.",
            rich_help_panel=MODEL,
        ),
    ],
    nodes: Annotated[
        int | None, typer.Option("--nodes", "-n", help="Nodes there are.", rich_help_panel=MODEL)
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option(help="GPUs of a node; default the preset's.", rich_help_panel=MODEL),
    ] = None,
    seq_len: Annotated[int, typer.Option(help="Tokens of a sequence.", rich_help_panel=RUN)],
    global_batch: Annotated[
        int | None, typer.Option(help="Sequences per optimizer step.", rich_help_panel=RUN)
    ] = None,
    global_batch_tokens: Annotated[
        int | None, typer.Option(help="Or tokens per optimizer step.", rich_help_panel=RUN)
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="bf16, fp16 or fp32.", rich_help_panel=RUN)
    ] = None,
    optimizer: Annotated[
        str | None, typer.Option(help="adamw, lion, adafactor, ...", rich_help_panel=RUN)
    ] = None,
    attention: Annotated[
        str | None, typer.Option(help="flash2, sdpa, eager, ...", rich_help_panel=RUN)
    ] = None,
    tokens: Annotated[
        str | None,
        typer.Option(help="Tokens to train on, such as 300e9: days, cost.", rich_help_panel=RUN),
    ] = None,
    lora: Annotated[
        bool, typer.Option("--lora", help="LoRA on a frozen base.", rich_help_panel=RUN)
    ] = False,
    qlora: Annotated[
        bool, typer.Option("--qlora", help="LoRA on a frozen 4-bit base.", rich_help_panel=RUN)
    ] = False,
    double_quantized: Annotated[
        bool,
        typer.Option(
            "--double-quantized",
            help="QLoRA whose quantisation constants are quantised too.",
            rich_help_panel=RUN,
        ),
    ] = False,
    lora_rank: Annotated[
        int | None, typer.Option(help="Rank of the adapters.", rich_help_panel=RUN)
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            help="Any other field of the API's request: training.matmul_precision=fp8, "
            "cluster.usd_per_gpu_hour=2.",
            rich_help_panel=RUN,
        ),
    ] = None,
) -> dict[str, Any]:
    """The request of the options, as the API takes it."""
    training: dict[str, Any] = {
        "seq_len": seq_len,
        "global_batch": global_batch,
        "global_batch_tokens": global_batch_tokens,
        "precision": precision,
        "optimizer": optimizer,
        "attention": attention,
        "tokens": None if tokens is None else whole(tokens),
    }
    if lora or qlora or double_quantized or lora_rank is not None:
        adapters = {"rank": lora_rank} if lora_rank is not None else {}
        four_bit = {"quantized_base": qlora or double_quantized}
        if double_quantized:
            four_bit["double_quantized"] = True
        training["lora"] = adapters | four_bit
    request = {
        "model": _named(model, "/model"),
        "cluster": _cluster(cluster, nodes=nodes, gpus_per_node=gpus_per_node),
        "training": {name: value for name, value in training.items() if value is not None},
    }
    return with_fields(request, field or [], "--field")


def with_options(
    options: inspect.Signature, make: Callable[..., Any], name: str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator: the command takes the options of `options` instead of its argument `name`.

    make: called with those options; what it returns becomes the argument.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = inspect.signature(command)

        @functools.wraps(command)
        def wrapped(**given: Any) -> None:
            made = make(**{p: given.pop(p) for p in options.parameters})
            command(**given, **{name: made})

        rest = [p for p in own.parameters.values() if p.name != name]
        merged = [*options.parameters.values(), *rest]
        signature = own.replace(
            parameters=[p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in merged]
        )
        wrapped.__signature__ = signature  # type: ignore[attr-defined]
        wrapped.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return wrapped

    return decorate


takes_request = with_options(inspect.signature(_options), _options, "request")
"""Decorates a command with an argument `request`: the request as plain data, of its options."""


def assignments(pairs: list[str], pointer: str) -> dict[str, Any]:
    """`name=value` pairs; values are JSON where they can be read so, else text."""
    values: dict[str, Any] = {}
    for pair in pairs:
        name, sign, text = pair.partition("=")
        if not sign or not name.strip():
            wanted = "write name=value, such as zero_stage=3"
            raise RequestError([Problem(pointer, f"got {pair!r}", wanted)])
        key = name.strip().replace("-", "_")
        try:
            values[key] = json.loads(text)
        except ValueError:
            values[key] = text
    return values
