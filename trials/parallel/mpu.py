"""The mesh in the words that DeepSpeed asks for: its `mpu` argument (Megatron's interface)."""

from typing import Any

import torch.distributed as dist

from trials.parallel.mesh import Axis, Mesh


class Mpu:
    """Tells the engine its groups where they are not simply the world.

    DeepSpeed reads groups of None as the world, so axes of one rank get groups of one.
    """

    def __init__(self, mesh: Mesh):
        self.mesh = mesh
        self.sequence = Axis(
            size=mesh.sp.size * mesh.cp.size,
            rank=mesh.cp.rank * mesh.sp.size + mesh.sp.rank,
            group=mesh.sp.group or mesh.cp.group,
        )
        self._alone: Any = None
        if mesh.tp.size == 1 or mesh.dp.size == 1 or mesh.zero.size == 1:
            for rank in range(dist.get_world_size()):
                group = dist.new_group([rank])
                if rank == dist.get_rank():
                    self._alone = group

    def _group(self, axis: Axis) -> Any:
        return self._alone if axis.size == 1 else axis.group

    def get_model_parallel_rank(self) -> int:
        """Tensor-parallel rank."""
        return self.mesh.tp.rank

    def get_model_parallel_world_size(self) -> int:
        """Tensor-parallel degree."""
        return self.mesh.tp.size

    def get_model_parallel_group(self) -> Any:
        """Ranks over which norms of sharded gradients are summed."""
        return self._group(self.mesh.tp)

    get_tensor_model_parallel_rank = get_model_parallel_rank
    get_tensor_model_parallel_world_size = get_model_parallel_world_size
    get_tensor_model_parallel_group = get_model_parallel_group

    def get_data_parallel_rank(self) -> int:
        """Which sequences this rank sees."""
        return self.mesh.dp.rank

    def get_data_parallel_world_size(self) -> int:
        """Data-parallel degree, against which the batch triple is checked."""
        return self.mesh.dp.size

    def get_data_parallel_group(self) -> Any:
        """Ranks that see different sequences."""
        return self._group(self.mesh.dp)

    def get_data_parallel_group_ranks(self) -> list[int]:
        """Their global ranks."""
        return list(self.mesh.dp.ranks)

    def get_sequence_parallel_rank(self) -> int:
        """Which part of a sequence this rank sees."""
        return self.sequence.rank

    def get_sequence_parallel_world_size(self) -> int:
        """Over how many ranks a sequence is cut."""
        return self.sequence.size

    def get_sequence_parallel_group(self) -> Any:
        """Ranks that share sequences."""
        return self._group(self.sequence)

    def get_sequence_data_parallel_rank(self) -> int:
        """Place among the ranks over which ZeRO shards."""
        return self.mesh.zero.rank

    def get_sequence_data_parallel_world_size(self) -> int:
        """Ranks over which ZeRO shards."""
        return self.mesh.zero.size

    def get_sequence_data_parallel_group(self) -> Any:
        """Ranks that hold the same parameters."""
        return self._group(self.mesh.zero)
