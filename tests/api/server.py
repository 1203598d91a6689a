"""The service as a process of its own, to be killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """`meshwright serve` on a free port."""

    def __init__(self, log: Path, **environment: str) -> None:
        self.log = log
        self.port = _free_port()
        self.environment = os.environ | environment | {"MESHWRIGHT_PORT": str(self.port)}
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=30)

    def __enter__(self) -> Self:
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "api.cli.main", "serve"],
                env=self.environment,
                stdout=out,
                stderr=out,
            )
        self.wait(lambda: self.http.get("/healthz").status_code == 200, 60)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.http.close()
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise

    def kill(self) -> None:
        """As the kernel does it: nothing is tidied up."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def wait(self, reached: Any, seconds: float) -> None:
        """Polls until `reached` says yes."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if reached():
                    return
            except httpx2.TransportError:
                if self.process.poll() is not None:
                    break
            time.sleep(0.05)
        raise TimeoutError(self.log.read_text())

    def post(self, request: dict[str, Any]) -> str:
        """Posts a request for plans; its id."""
        answer = self.http.post("/v1/plans", json=request)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def plan(self, plan_id: str) -> dict[str, Any]:
        """A request for plans."""
        found: dict[str, Any] = self.http.get(f"/v1/plans/{plan_id}").json()
        return found

    def finished(self, plan_id: str, seconds: float = 120) -> dict[str, Any]:
        """The request once its search is done."""
        self.wait(lambda: self.plan(plan_id)["status"] not in {"queued", "running"}, seconds)
        return self.plan(plan_id)


def children(pid: int) -> list[int]:
    """Processes that a process started."""
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += (task / "children").read_text().split()
    return sorted({int(child) for child in found})


def running(pid: int) -> bool:
    """Whether a process runs (a dead one that nobody waited for does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
