"""How many parameters DeepSpeed's optimizers update at a time."""

import numpy as np

from cost_model.plans import Floats

SUB_GROUP = 1_000_000_000
"""Parameters of one rank that ZeRO-3 updates at a time (DeepSpeed's sub_group_size)."""

RATIO_GROUPS = 32
"""Sub-groups of ZeRO-3 where a ratio of the optimizer is offloaded: the ratio keeps whole ones on
the GPU, int((1 - ratio) x their number) of them (stage3.py `subgroup_to_device`), and most ranks
hold one of DeepSpeed's default of 10^9 elements, which goes to the host whatever the ratio. So the
exported config asks for smaller ones."""

EXPERT_GROUP = 178_956_971
"""Expert parameters that ZeRO 1 and 2 update at a time (max_group_size of
split_params_into_different_moe_groups_for_optimizer)."""


def reached_share(matrix: int, ranks: Floats) -> Floats:
    """What ZeRO 1 and 2 keep of the gradients of a group of experts, over this rank's part [rows].

    matrix: elements of one expert matrix; ranks: over which the group is cut [rows]. A gradient is
    kept whole where any of it lies in the part (stage_1_and_2.py copy_grads_in_partition), and a
    group is a few matrices. Of k matrices over r ranks the rank with most reaches into
    ceil(1 + (k - gcd(k, r)) / r) of them.
    """
    over = np.maximum(ranks, 1.0).astype(np.int64)
    matrices = max(EXPERT_GROUP // matrix, 1)
    most = np.ceil(1 + (matrices - np.gcd(matrices, over)) / over)
    share: Floats = most * over / matrices
    return share
