"""Fits the coefficients of the cost model to measured rows, and says how well they carry over."""
