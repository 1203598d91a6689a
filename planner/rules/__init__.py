"""Each legality rule once, as data."""

import numpy as np

from cost_model.plans import Bools, Plan, PlanTable
from planner.rules import combination, placement, shape, states
from planner.rules.rule import Kind, Rule, Violation, World

RULES: tuple[Rule, ...] = shape.RULES + placement.RULES + combination.RULES + states.RULES

__all__ = ["RULES", "Kind", "Rule", "Violation", "World", "legal", "rule", "violations"]


def rule(name: str) -> Rule:
    """The rule of that name; KeyError if there is none."""
    return {r.name: r for r in RULES}[name]


def legal(world: World, table: PlanTable, rules: tuple[Rule, ...] = RULES) -> Bools:
    """True where a plan keeps every rule [plans]."""
    kept = np.ones(len(table), np.bool_)
    for one in rules:
        kept &= one.legal(world, table)
    return kept


def violations(world: World, plan: Plan) -> list[Violation]:
    """The rules that one plan breaks, in the order of RULES."""
    table = PlanTable.from_plans([plan])
    return [
        Violation(one.name, one.kind, one.message(world, plan), one.enforced_at, one.reads)
        for one in RULES
        if not one.legal(world, table)[0]
    ]
