"""Asks the real DeepSpeed engine about combinations: `python -m tests.planner.rules.engine CASES`.

Reads a JSON list of cases on stdin and prints one JSON object: name -> "ok" or the error. torch
and deepspeed are imported once; the ranks of each case are forked, on gloo and the CPU.
"""

import json
import os
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "DEEPSPEED_LOG_LEVEL": "error"}

import deepspeed
import deepspeed.ops
import deepspeed.runtime.zero.muon.muon_optimizer
import torch
import torch._dynamo
from deepspeed.moe.layer import MoE
from deepspeed.pipe import LayerSpec, PipelineModule
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled at start-up

WIDTH, VOCAB, SEQ = 32, 64, 8


class Linear(nn.Module):
    """A pipeline layer."""

    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.matrix(x)


class Experts(nn.Module):
    """A model whose only layer is DeepSpeed's own mixture of experts."""

    def __init__(self, ep: int) -> None:
        super().__init__()
        self.inward = nn.Linear(WIDTH, WIDTH)
        self.moe = MoE(WIDTH, nn.Linear(WIDTH, WIDTH), num_experts=4, ep_size=ep, k=1)

    def forward(self, x: Tensor) -> Tensor:
        mixed: Tensor = self.moe(self.inward(x))[0]
        return mixed.square().mean()


def _llama() -> nn.Module:
    config = LlamaConfig(
        hidden_size=WIDTH,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=VOCAB,
    )
    return LlamaForCausalLM(config)


def _step(case: dict[str, Any]) -> None:
    """Initialises and takes one optimizer step."""
    config, kind = case["config"], case["kind"]
    torch.manual_seed(0)
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    micro = config["train_micro_batch_size_per_gpu"]
    dtype = torch.bfloat16 if config.get("bf16", {}).get("enabled") else torch.float32
    if kind == "pipeline":
        model = PipelineModule(
            [LayerSpec(Linear) for _ in range(4)],
            num_stages=case["pp"],
            loss_fn=lambda out, y: (out - y).square().mean(),
            partition_method="uniform",
        )
        engine, *_ = deepspeed.initialize(
            model=model, model_parameters=list(model.parameters()), config=config
        )
        batch = (torch.ones(micro, WIDTH, dtype=dtype), torch.zeros(micro, WIDTH, dtype=dtype))
        engine.train_batch(iter([batch] * config["gradient_accumulation_steps"]))
        return
    model = Experts(case["ep"]) if kind == "experts" else _llama()
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), config=config
    )
    for _ in range(config["gradient_accumulation_steps"]):
        if kind == "experts":
            loss = engine(torch.ones(micro, SEQ, WIDTH, dtype=dtype))
        else:
            tokens = torch.ones(micro, SEQ, dtype=torch.long)
            loss = engine(input_ids=tokens, labels=tokens).loss
        engine.backward(loss)
        engine.step()


def _rank(case: dict[str, Any], rank: int, port: int, result: Path) -> None:
    world = str(case["world"])
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": world}
    os.environ |= {"LOCAL_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    try:
        _step(case)
        told = "ok"
    except BaseException as error:
        told = f"{type(error).__name__}: {error}"
    result.write_text(told, "utf-8")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask(case: dict[str, Any], folder: Path, seconds: float = 60) -> str:
    """Forks the ranks of one case; the first error that is not a lost connection."""
    port, ranks = _free_port(), range(case["world"])
    results = [folder / f"{case['name']}.{rank}" for rank in ranks]
    children = []
    for rank in ranks:
        child = os.fork()
        if child == 0:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            _rank(case, rank, port, results[rank])
            os._exit(0)
        children.append(child)
    deadline = time.monotonic() + seconds
    waiting = set(children)
    while waiting:
        for child in list(waiting):
            if os.waitpid(child, os.WNOHANG)[0]:
                waiting.discard(child)
        failed = any(r.exists() and r.read_text("utf-8") not in {"ok", ""} for r in results)
        if failed:
            deadline = min(deadline, time.monotonic() + 3)
        if time.monotonic() > deadline:
            for child in waiting:
                os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    told = [r.read_text("utf-8") if r.exists() else "no result" for r in results]
    errors = [t for t in told if t != "ok"]
    if not errors:
        return "ok"
    return min(errors, key=lambda t: ("Connection" in t, t == "no result"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        verdicts = {case["name"]: ask(case, Path(scratch)) for case in json.load(sys.stdin)}
    print(json.dumps(verdicts))
