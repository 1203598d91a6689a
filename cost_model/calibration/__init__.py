"""Coefficients, where each comes from, and fitting them."""

from cost_model.calibration.coefficients import (
    Coefficients,
    GpuCoefficients,
    LinkCoefficients,
    SoftwareCoefficients,
    Spread,
)

__all__ = [
    "Coefficients",
    "GpuCoefficients",
    "LinkCoefficients",
    "SoftwareCoefficients",
    "Spread",
]
