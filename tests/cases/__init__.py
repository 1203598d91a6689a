"""Tests of how real cases are understood."""
