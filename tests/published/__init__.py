"""Figures published in papers and documentation, each with its citation."""
