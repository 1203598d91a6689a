"""Techniques that split one model over ranks, a file for each."""
