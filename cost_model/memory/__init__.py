"""GPU, host and NVMe bytes of a plan: by category, pipeline stage and phase."""

from cost_model.memory.breakdown import Detail, Moment, detail
from cost_model.memory.prediction import memory, need
from cost_model.memory.uncertainty import fits_probability, interval

__all__ = ["Detail", "Moment", "detail", "fits_probability", "interval", "memory", "need"]
