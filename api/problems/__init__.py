"""Errors as RFC 9457 problem details, everywhere the same."""

from api.problems.handlers import install
from api.problems.model import InvalidField, Problem, problem_responses

__all__ = ["InvalidField", "Problem", "install", "problem_responses"]
