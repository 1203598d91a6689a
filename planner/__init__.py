"""Decides: which plans are legal, which is best, why, and what the engine's config for it is."""
