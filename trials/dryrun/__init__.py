"""The real engine on fake tensors: what a plan allocates, without a GPU.

This package imports no torch at its top level, so that a service without it can import it; the
engine runs in a process of its own.
"""
