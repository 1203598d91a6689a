"""Durable jobs: what survives the death of the process that runs them."""

from api.jobs.runtime import Jobs

__all__ = ["Jobs"]
