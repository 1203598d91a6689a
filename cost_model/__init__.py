"""Predicts memory, step time and traffic of training plans: pure functions of columns."""
