"""`python -m tests.benchmarks.cases FILE`: real cases, answered and compared with what happened."""

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks.cases.judge import Judged, judge


def main() -> None:
    """Judge every planner case of a file and print the table."""
    parser = argparse.ArgumentParser(prog="cases", description=__doc__)
    parser.add_argument("file", type=Path, help="JSON list of cases")
    parser.add_argument("--json", type=Path, help="write the verdicts there")
    parser.add_argument("--all", action="store_true", help="show right answers too")
    args = parser.parse_args()
    cases = [c for c in json.loads(args.file.read_text("utf-8")) if c.get("kind") == "planner"]
    judged = [judge(case) for case in cases]
    console = Console(width=None if Console().is_terminal else 170)
    console.print(_table(judged, everything=args.all))
    asked = [j for j in judged if j.verdicts]
    claims = [v for j in asked for v in j.verdicts]
    console.print(
        f"{sum(j.right for j in asked)} of {len(asked)} cases answered as observed; "
        f"{sum(v.right for v in claims)} of {len(claims)} claims; "
        f"{len(judged) - len(asked)} cases state nothing that can be asked"
    )
    if args.json:
        args.json.write_text(json.dumps(_document(judged), indent=1) + "\n", encoding="utf-8")


def _table(judged: list[Judged], everything: bool) -> Table:
    table = Table(title="Planner cases")
    for column in ("case", "claim", "observed", "said", ""):
        table.add_column(column, overflow="fold")
    for case in judged:
        if case.skipped:
            table.add_row(case.case_id, case.skipped, "", "", "left out")
        for v in case.verdicts:
            if everything or not v.right:
                row = (case.case_id, v.claim.what, v.claim.outcome, v.said)
                table.add_row(*row, "right" if v.right else "WRONG")
    return table


def _document(judged: list[Judged]) -> list[dict[str, object]]:
    return [
        {
            "id": j.case_id,
            "right": j.right,
            "skipped": j.skipped,
            "claims": [
                {
                    "what": v.claim.what,
                    "observed": v.claim.outcome,
                    "said": v.said,
                    "right": v.right,
                }
                for v in j.verdicts
            ],
        }
        for j in judged
    ]


if __name__ == "__main__":
    main()
