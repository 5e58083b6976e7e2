"""Tree ensembles of ai.onnx.ml, in their three forms: walks through the trees, then standard operators.

    sums   = Trees(X, records, thresholds, weights, roots, depths, targets)     one for each class or target
    Z      = transform(sums + base values),  Y = the label of the largest

Labels and second columns of a model of two classes with one score are those of onnxruntime.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from frontend.normalise.pending import PendingNode, form
from frontend.normalise.tree_records import Decision, Records
from graph_opt.ir import Value
from tensor_types.dtypes import F32, F64, I32, I64, STR, DType

DOMAIN = "ai.onnx.ml::"
_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_MOST_IN_BLOCK = 16
"""Trees that a kernel walks through side by side."""


@dataclass
class _Forest:
    """`leaves` gives for each leaf its (target, weight) pairs; `roots` are decisions, or leaves as -1 - number."""

    decisions: Sequence[Decision]
    roots: Sequence[int]
    leaves: Sequence[Sequence[tuple[int, float]]]


@form(f"{DOMAIN}TreeEnsembleRegressor")
def _regressor(node: PendingNode) -> None:
    forest = _listed(node, "target")
    targets = int(node.number("n_targets", 1))
    sums = _walk(node, forest, targets, str(node.attrs.get("aggregate_function", "SUM")), F32)
    base = _numbers(node, "base_values")
    if base is not None:
        sums = node.emit("Add", [sums, node.constant(base, F32, "base")])
    _become_transformed(node, sums)


@form(f"{DOMAIN}TreeEnsemble")
def _ensemble(node: PendingNode) -> None:
    """The form of version 5: decisions and leaves apart, attributes as numbers."""
    attrs = node.attrs
    said = zip(_list(attrs, "leaf_targetids"), _list(attrs, "leaf_weights"), strict=True)
    leaves = [[(int(target), float(weight))] for target, weight in said]
    modes, features = _list(attrs, "nodes_modes"), _list(attrs, "nodes_featureids")
    missing = _list(attrs, "nodes_missing_value_tracks_true") or [0] * len(modes)
    members = iter(np.asarray(_list(attrs, "membership_values"), np.float64).tolist())
    children = {}
    for side in ("true", "false"):
        ids, kinds = _list(attrs, f"nodes_{side}nodeids"), _list(attrs, f"nodes_{side}leafs")
        children[side] = [-1 - int(i) if leaf else int(i) for i, leaf in zip(ids, kinds, strict=True)]
    decisions = []
    for k, (mode, split) in enumerate(zip(modes, _list(attrs, "nodes_splits"), strict=True)):
        own = [] if _MODES[int(mode)] != "MEMBER" else list(iter(lambda: next(members, np.nan), _End()))
        decisions.append(Decision(int(features[k]), _MODES[int(mode)], float(split), bool(missing[k]),
                                  children["true"][k], children["false"][k], own))  # fmt: skip
    roots = []
    for root in map(int, _list(attrs, "tree_roots")):
        alone = children["true"][root] == children["false"][root] < 0
        roots.append(children["true"][root] if alone else root)
    aggregate = _AGGREGATES[int(node.number("aggregate_function", 1))]
    targets = int(node.number("n_targets", 1))
    sums = _walk(node, _Forest(decisions, roots, leaves), targets, aggregate, node.value(0).dtype)
    node.attrs["post_transform"] = _TRANSFORMS[int(node.number("post_transform", 0))]
    _become_transformed(node, sums)


class _End:
    """Equal to NaN, which ends the members of a decision."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and np.isnan(other)

    __hash__ = None  # type: ignore[assignment]


@form(f"{DOMAIN}TreeEnsembleClassifier")
def _classifier(node: PendingNode) -> None:
    forest, attrs = _listed(node, "class"), node.attrs
    words, numbers = attrs.get("classlabels_strings"), attrs.get("classlabels_int64s")
    labels = list(words or numbers or ())  # type: ignore[call-overload]
    classes, base = max(len(labels), 1), _numbers(node, "base_values")
    used = {target for leaf in forest.leaves for target, _ in leaf}
    if max(used, default=0) >= classes:
        raise node.error(f"leaves speak of class {max(used)}, labels are {classes}")
    single = classes <= 2 and len(used) <= 1
    one = single and used <= {0} and (base is None or len(base) == 1)
    sums = _walk(node, forest, 1 if one else classes, "SUM", F32)
    if base is not None and (one or len(base) == classes):
        sums = node.emit("Add", [sums, node.constant(base, F32, "base")])
    positive = all(weight >= 0 for leaf in forest.leaves for _, weight in leaf)
    transform = str(attrs.get("post_transform", "NONE"))
    scores = _both_classes(node, sums, classes, positive, transform) if one else _transformed(node, sums, transform)
    if single:  # one score decides between two classes
        score = node.emit("Gather", [sums, node.constant(max(used, default=0), I64, "column")], {"axis": 1})
        limit = node.constant(0.5 if positive and classes == 2 else 0.0, F32, "limit")
        index = node.emit("Cast", [node.emit("Greater", [score, limit])], {"to": I64.onnx})
        if classes == 1:
            labels = ["", labels[0]] if words else [0, 1]
    else:
        index = node.emit("ArgMax", [sums], {"axis": 1, "keepdims": 0})
    node.give(1, scores)
    del node.outputs[1:]
    node.become("Gather", [node.constant(labels, STR if words else I64, "labels"), index], {"axis": 0})


def _both_classes(node: PendingNode, sums: Value, classes: int, positive: bool, transform: str) -> Value:
    """The scores [rows, classes] of a model that has one: of two classes the second's, the other's is what is left."""
    if classes == 1:
        return sums
    if positive and transform != "LOGISTIC":
        other = node.emit("Sub", [node.constant(1, F32, "one"), sums])
    else:
        other = node.emit("Neg", [sums])
    both = node.emit("Concat", [other, sums], {"axis": 1})
    return node.emit("Sigmoid", [both]) if transform == "LOGISTIC" else both


def _listed(node: PendingNode, kind: str) -> _Forest:
    """The older form: one list of nodes of all trees, leaves among them, weights by tree and node."""
    attrs = node.attrs
    trees, ids, modes = (_list(attrs, f"nodes_{name}") for name in ("treeids", "nodeids", "modes"))
    values = _numbers(node, "nodes_values")
    missing = _list(attrs, "nodes_missing_value_tracks_true") or [0] * len(ids)
    features, true, false = (_list(attrs, f"nodes_{name}") for name in ("featureids", "truenodeids", "falsenodeids"))
    if values is None or not len(trees) == len(ids) == len(modes) == len(features) == len(true) == len(false):
        raise node.error("its lists of nodes differ in length")
    number = {key: k for k, key in enumerate(zip(trees, ids, strict=True))}
    weights = _numbers(node, f"{kind}_weights")
    pairs: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for tree, at, target, weight in zip(*(_list(attrs, f"{kind}_{n}") for n in ("treeids", "nodeids", "ids")),
                                        () if weights is None else weights.tolist(), strict=True):  # fmt: skip
        pairs.setdefault((tree, at), []).append((int(target), weight))
    leaves: list[list[tuple[int, float]]] = []
    codes: list[int] = []
    for key, mode in zip(number, modes, strict=True):
        codes.append(-1 - len(leaves) if mode == "LEAF" else len(codes) - len(leaves))
        if mode == "LEAF":
            leaves.append(pairs.get(key, []))
    decisions = []
    try:
        for k, mode in enumerate(modes):
            if mode != "LEAF":
                both = (codes[number[trees[k], child[k]]] for child in (true, false))
                decisions.append(Decision(int(features[k]), str(mode).removeprefix("BRANCH_"), float(values[k]),
                                          bool(missing[k]), *both))  # fmt: skip
    except KeyError as error:
        raise node.error(f"a child is no node of its tree: {error}") from None
    first: dict[int, int] = {}
    for k, tree in enumerate(trees):
        first.setdefault(tree, codes[k])
    return _Forest(decisions, list(first.values()), leaves)


def _walk(node: PendingNode, forest: _Forest, targets: int, aggregate: str, result: DType) -> Value:
    """What the trees say of each row, [rows, targets], by the records of `tree_records`."""
    x = node.value(0)
    if x.shape is None or len(x.shape) not in (1, 2):
        raise node.error("rows of features are expected")
    if len(x.shape) == 1:
        x = node.emit("Unsqueeze", [x, node.ints([0], "axes")])
    if x.dtype not in (F32, F64):
        x = node.emit("Cast", [x], {"to": F32.onnx})
    features = max((d.feature for d in forest.decisions), default=0) + 1
    width = x.shape[1]  # type: ignore[index]
    if isinstance(width, int) and width < features:
        raise node.error(f"a decision asks for feature {features - 1} of {width}")
    if aggregate not in _AGGREGATES:
        raise node.error(f"the aggregate {aggregate} is not known")
    if any(np.isinf(d.threshold) or np.isnan(d.threshold) for d in forest.decisions if d.mode != "MEMBER"):
        raise node.refuse("a threshold that is no finite number")
    if any(target >= targets for leaf in forest.leaves for target, _ in leaf):
        raise node.error(f"a leaf speaks of a target that is none of {targets}")
    records = Records(features, x.dtype.numpy.type)
    try:
        grown = [records.tree(root, forest.decisions) for root in forest.roots]
    except (ValueError, IndexError) as error:
        raise node.error(str(error)) from None
    tables = _tables(records, grown, forest, targets, aggregate)
    names = ("records", "thresholds", "weights", "roots", "depths", "targets")
    narrow = tables["shift"] + len(records.left).bit_length() < 32
    dtypes = (I32 if narrow else I64, x.dtype, x.dtype, I64, I64, I64)
    constants = [node.constant(tables[name], dtype, name) for name, dtype in zip(names, dtypes, strict=True)]
    attrs = {"shift": tables["shift"], "features": features, "results": targets,
             "depth": max(tables["depths"], default=0), "aggregate": aggregate}  # fmt: skip
    sums = node.emit("Trees", [x, *constants], attrs)
    if aggregate == "AVERAGE":
        sums = node.emit("Mul", [sums, node.constant(1 / max(len(grown), 1), x.dtype, "share")])
    return sums if sums.dtype == result else node.emit("Cast", [sums], {"to": result.onnx})


def _tables(records: Records, grown: Sequence[tuple[int, int]], forest: _Forest, targets: int,
            aggregate: str) -> dict[str, Any]:  # fmt: skip
    """Constants of a Trees node."""
    neutral = {"MIN": np.inf, "MAX": -np.inf}.get(aggregate, 0.0)
    spoken = _targets_of_trees(records, grown, forest)
    single = all(len(t) <= 1 for t in spoken)
    weights = np.full((len(records.left) + 1, 1 if single else targets), neutral)
    for slot, leaf in enumerate(records.leaf):
        for target, weight in forest.leaves[leaf] if leaf >= 0 else ():
            at = (slot, 0 if single else target)
            weights[at] = {"MIN": min, "MAX": max}.get(aggregate, lambda a, b: a + b)(weights[at], weight)
    shift = max(int(2 * records.features - 1).bit_length(), 1)
    records._slot()  # a tree without decisions, whose leaf says nothing: it fills blocks up
    of_target: dict[int, list[int]] = {}
    for tree, said in enumerate(spoken):
        of_target.setdefault(min(said, default=0) if single else 0, []).append(tree)
    widest = max(map(len, of_target.values()), default=1)
    block = min(1 << (widest - 1).bit_length(), _MOST_IN_BLOCK)
    rows: list[list[int]] = []
    places, depths = [], []
    for target, trees in sorted(of_target.items()):
        trees = sorted(trees, key=lambda t: grown[t][1])  # alike deep ones side by side
        for first in range(0, len(trees), block):
            part = [grown[t] for t in trees[first : first + block]]
            rows.append([root for root, _ in part] + [len(records.left) - 1] * (block - len(part)))
            places.append(target)
            depths.append(max(depth for _, depth in part))
    return {"records": np.array(records.left) << shift | np.array(records.columns), "thresholds": records.thresholds,
            "weights": weights, "roots": np.array(rows, np.int64).reshape(-1, block), "depths": depths,
            "targets": places, "shift": shift}  # fmt: skip


def _targets_of_trees(records: Records, grown: Sequence[tuple[int, int]], forest: _Forest) -> list[set[int]]:
    """The targets that the leaves of each tree speak of; records of a tree follow its root."""
    ends = [root for root, _ in grown[1:]] + [len(records.left)]
    return [
        {target for leaf in records.leaf[root:end] if leaf >= 0 for target, _ in forest.leaves[leaf]}
        for (root, _), end in zip(grown, ends, strict=True)
    ]


def _become_transformed(node: PendingNode, sums: Value) -> None:
    node.become("Identity", [_transformed(node, sums, str(node.attrs.get("post_transform", "NONE")))])


def _transformed(node: PendingNode, sums: Value, transform: str) -> Value:
    if transform == "NONE":
        return sums
    if transform == "LOGISTIC":
        return node.emit("Sigmoid", [sums])
    if transform == "SOFTMAX":
        return node.emit("Softmax", [sums], {"axis": 1})
    if transform != "SOFTMAX_ZERO":
        raise node.refuse(f"the transform {transform}")
    # As softmax, but what is 0 stays 0 and counts for nothing.
    zero = node.emit("Equal", [sums, node.constant(0, sums.dtype, "zero")])
    odds = node.emit("Exp", [node.emit("Sub", [sums, node.emit("ReduceMax", [sums, node.ints([1], "axes")])])])
    odds = node.emit("Where", [zero, node.constant(0, sums.dtype, "zero"), odds])
    return node.emit("Div", [odds, node.emit("ReduceSum", [odds, node.ints([1], "axes")])])


def _numbers(node: PendingNode, name: str) -> np.ndarray | None:
    """A list of numbers, which may be written as a tensor."""
    tensor = node.attrs.get(f"{name}_as_tensor")
    found = node.attrs.get(name) if tensor is None else tensor
    return None if found is None else np.asarray(found).reshape(-1)


def _list(attrs: Mapping[str, Any], name: str) -> list[Any]:
    found = attrs.get(name)
    if found is None:
        return []
    return found.reshape(-1).tolist() if isinstance(found, np.ndarray) else list(found)
