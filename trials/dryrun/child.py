"""The process in which one rank is run: reads a task, writes a result. `python -m` runs it."""

import json
import os
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any


def main(task_path: str, result_path: str) -> int:
    """Runs the task; the result file holds the rank's result or the error."""
    warnings.filterwarnings("ignore")
    task = json.loads(Path(task_path).read_text("utf-8"))
    try:
        outcome: dict[str, Any] = {"result": _run(task)}
    except Exception as error:
        outcome = {"error": _described(error)}
    partial = f"{result_path}.partial"
    Path(partial).write_text(json.dumps(outcome), "utf-8")
    os.replace(partial, result_path)
    return 0 if "result" in outcome else 1


def _run(data: dict[str, Any]) -> dict[str, Any]:
    from trials.dryrun.rank import run_rank
    from trials.dryrun.result import DryRunTask

    return run_rank(DryRunTask.model_validate(data)).model_dump(mode="json")


def _described(error: Exception) -> dict[str, str]:
    from trials.model.unsupported import UnsupportedModel

    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if "deepspeed" in f.filename]
    where = inside[-1] if inside else frames[-1]
    kind = "unsupported" if isinstance(error, UnsupportedModel) else "refused"
    place = f"{where.filename.rsplit('/site-packages/', 1)[-1]}:{where.lineno}"
    return {"kind": kind, "message": f"{type(error).__name__}: {error} ({place})"}


def _end_with_the_parent() -> None:
    """Ends this process once its standard input closes: whoever asked is gone."""

    def watch() -> None:
        sys.stdin.buffer.read()
        os._exit(3)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    _end_with_the_parent()
    # Interpreter shutdown with fake tensors alive can abort; the result is already written.
    code = main(sys.argv[1], sys.argv[2])
    sys.stdout.flush()
    os._exit(code)
