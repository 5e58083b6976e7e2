"""One meaning per operator: nodes of old opsets are brought to the form of the newest one, family by family.

Takes a `PendingNode` with typed inputs and changes it in place, adding nodes before it where the form needs them.
Knows operators, one node at a time; knows neither files nor the rest of the graph.
"""

from frontend.normalise import (  # noqa: F401 (importing a family registers its rules)
    block_quantised,
    carried_states,
    classical,
    contrib,
    contrib_attention,
    contrib_forms,
    elementwise,
    experts,
    flex_attention,
    group_query,
    image,
    losses,
    matrix,
    movement,
    normalization,
    paged_attention,
    quantised_products,
    recurrent,
    reduction,
    sparse_attention,
    training,
    trees,
)
from frontend.normalise.pending import APPLIES_BODIES, PendingNode, normalise

__all__ = ["APPLIES_BODIES", "PendingNode", "normalise"]
