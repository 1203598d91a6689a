"""Exact search of the analytic space; Optuna for what is dear or continuous."""

from planner.search.optimize import Measurement, Outcome, optimize
from planner.search.result import Certificate, Change, NothingFits, SearchResult
from planner.search.run import predict_one, search

__all__ = [
    "Certificate",
    "Change",
    "Measurement",
    "NothingFits",
    "Outcome",
    "SearchResult",
    "optimize",
    "predict_one",
    "search",
]
