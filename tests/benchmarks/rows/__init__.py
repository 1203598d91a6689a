"""Published measurements, each turned into a question that the cost model can answer."""

from tests.benchmarks.rows.measured import Measured
from tests.benchmarks.rows.read import Row, Skipped, read_directory, read_file, translate

__all__ = ["Measured", "Row", "Skipped", "read_directory", "read_file", "translate"]
