"""The form of the first page as a request for plans."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request

from api.http.partial_plan import columns
from api.other_fields import whole, with_fields
from planner.request.search import Objective

FIELDS = (
    "model", "config", "cluster", "nodes", "gpus_per_node", "seq_len", "global_batch", "tokens",
    "precision", "method", "objective", "around", "what_if", "others",
)  # fmt: skip

DEFAULTS = {
    "model": "llama-2-13b",
    "config": "",
    "cluster": "dgx-a100-80g",
    "nodes": "1",
    "gpus_per_node": "",
    "seq_len": "4096",
    "global_batch": "256",
    "tokens": "",
    "precision": "",
    "method": "full",
    "objective": "throughput",
    "around": "",
    "what_if": "",
    "others": "",
}

METHODS = {
    "full": None,
    "lora": {"quantized_base": False},
    "qlora": {"quantized_base": True},
    "qlora, double quantized": {"quantized_base": True, "double_quantized": True},
}

OTHERS = "other fields"
"""What a problem with a line of them points to."""

OBJECTIVES: tuple[str, ...] = Objective.__args__  # type: ignore[attr-defined]


async def fields(request: Request) -> dict[str, str]:
    """What a form has sent. Refuses what another site sends through the user's browser."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        raise HTTPException(403, "the form was sent from another site")
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace")))


async def submitted(request: Request) -> dict[str, str]:
    """The fields of the first page's form; those that are missing have their default."""
    sent = await fields(request)
    return DEFAULTS | {name: sent[name].strip() for name in FIELDS if name in sent}


def request_of(form: Mapping[str, str], config: Any) -> dict[str, Any]:
    """The form as POST /v1/plans takes it; config: the model's config.json, if one was given."""
    training: dict[str, Any] = {
        name: whole(form[name]) for name in ("seq_len", "global_batch", "tokens") if form[name]
    }
    if form["precision"]:
        training["precision"] = form["precision"]
    adapters = METHODS.get(form["method"])
    if adapters is not None:
        training["lora"] = adapters
    search: dict[str, Any] = {"objective": form["objective"], "what_if": bool(form["what_if"])}
    if form["around"]:
        search["around"] = columns(form["around"], "/search/around")
    cluster = {"preset": form["cluster"], "nodes": whole(form["nodes"])}
    if form["gpus_per_node"]:
        cluster["gpus_per_node"] = whole(form["gpus_per_node"])
    request = {
        "model": {"preset": form["model"]} if config is None else {"config": config},
        "cluster": cluster,
        "training": training,
        "search": search,
    }
    others = [line.strip() for line in form["others"].splitlines()]
    return with_fields(request, filter(None, others), OTHERS)
