"""Runs: the engine itself on fake tensors (dry run) or real devices (trial). Torch lives here."""
