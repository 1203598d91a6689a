"""Exact search of the analytic space."""

from planner.search.result import Certificate, Change, NothingFits, SearchResult
from planner.search.run import predict_one, search

__all__ = [
    "Certificate",
    "Change",
    "NothingFits",
    "SearchResult",
    "predict_one",
    "search",
]
