"""How many parameters DeepSpeed's optimizers update at a time."""

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
