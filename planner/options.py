"""A request on one of the clusters that groups of different nodes make."""

from dataclasses import replace

from cost_model.plans import Software
from cost_model.specs import ClusterSpec
from planner.groups import reordered
from planner.request.request import Resolved
from planner.request.search import Limit

PIPELINES = (Software.DEEPSPEED_PIPELINE, Software.MEGATRON_DEEPSPEED, Software.MEGATRON)

PLACEMENTS = 4
"""Plans kept of a union for each that is asked for."""


def on_option(resolved: Resolved, cluster: ClusterSpec) -> Resolved:
    """The request on one option; of further orders of a union only pipelines matter.

    More plans are kept than asked for, since many of them differ in their placement alone.
    """
    search = resolved.search
    if cluster.groups and search.objective != "pareto":
        search = search.model_copy(update={"keep": PLACEMENTS * search.keep})
    if cluster.groups and reordered(cluster, resolved.groups):
        limit, several = search.limits.get("pp"), Limit(min=2)
        both = several if limit is None else several.and_also(limit)
        pipelined = tuple(s for s in search.software if s in PIPELINES)
        narrowed = {"limits": search.limits | {"pp": both}, "software": pipelined}
        search = search.model_copy(update=narrowed)
    search = search.model_copy(update={"what_if": False})  # asked of all groups together
    return replace(resolved, cluster=cluster, search=search, groups=())
