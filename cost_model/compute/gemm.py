"""Time of matrix products by their shape."""

from dataclasses import dataclass

import numpy as np

from cost_model.compute.rates import Rates
from cost_model.plans import Floats

_TILES = (
    # rows, columns, ways of splitting the depth, rate against the largest tile
    (256, 128, 1, 1.0),
    (128, 128, 1, 0.96),
    (128, 64, 1, 0.80),
    (64, 64, 1, 0.62),
    (128, 128, 4, 0.82),
)
"""Tiles that cuBLAS chooses from. A smaller tile reads more operand bytes per FLOP, and so feeds
the matrix units less well; splitting the depth fills the GPU where the result is small, at the
price of adding up the parts. The relative rates follow from operand bytes per FLOP: NVIDIA,
"Matrix multiplication background user's guide", sections 3 to 5."""


@dataclass(frozen=True)
class Products:
    """Matrix products [m, k] x [k, n]. Fields broadcast to [products, shapes]."""

    m: Floats
    n: Floats
    k: Floats
    batch: Floats
    """Equal products that run as one kernel."""


def stack(products: list[tuple[Floats, Floats, Floats, Floats]], shapes: int) -> Products:
    """Products of (m, n, k, batch), each broadcast to [shapes]."""
    columns = np.empty((4, len(products), shapes))
    for row, product in enumerate(products):
        for column, value in enumerate(product):
            columns[column, row] = value
    return Products(*columns)


def gemm_seconds(products: Products, rates: Rates, flops: float | None = None) -> Floats:
    """Time of each product [products, shapes]; flops: rate of a large one if not the usual.

    The result is cut into tiles; as many tiles run at once as there are multiprocessors, so the
    time is that of the waves of tiles (tile and wave quantisation: NVIDIA, "Matrix multiplication
    background user's guide", section 4). A tile's depth costs k plus a fill and drain. The
    cheapest tile is taken, at the clock of an idle GPU: where all multiprocessors are busy, power
    holds the clock down, so that no product is faster than the sustained rate, and one that leaves
    some idle loses less than its share. Never faster than the operands are read. Writing the
    result comes on top: a tile writes when its depth is done, and its multiprocessor computes
    nothing meanwhile, which is what makes products of small depth (attention scores) slow.
    """
    m, n, k, batch = products.m, products.n, products.k, products.batch
    sustained = flops or rates.gemm_flops
    per_sm = sustained * rates.headroom / rates.sms
    best = np.full(m.shape, np.inf)
    for rows, columns, splits, rate in _TILES:
        tiles = np.ceil(m / rows) * np.ceil(n / columns) * batch * splits
        waves = np.ceil(tiles / rates.sms)
        depth = k / splits + rates.gpu.gemm_k_half
        np.minimum(best, waves * depth * (2.0 * rows * columns / (per_sm * rate)), out=best)
    unit = rates.element_bytes / rates.bytes_per_s
    read, written = batch * (m * k + k * n) * unit, batch * m * n * unit
    best = np.maximum(best, m * n * k * batch * (2.0 / sustained))
    seconds: Floats = np.maximum(best, read) + written
    return np.where(m * n * k > 0, seconds + rates.gpu.gemm_overhead_us * 1e-6, 0.0)
