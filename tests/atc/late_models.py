"""Small models whose sizes partly only the data decides."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper
from small_models import BOOL, F32, I64, N, array, info, model_of, random


def selected_rows() -> onnx.ModelProto:
    """x f32 [n, 16], keep bool [n] → y f32 [n, 8], total f32 [8], places i64 [1, m]: a layer on the kept rows alone."""
    nodes = [
        N("NonZero", ["keep"], ["places"], "find"),
        N("Squeeze", ["places", "zero_axis"], ["rows"], "flat"),
        N("Gather", ["x", "rows"], ["some"], "take", axis=0),
        N("MatMul", ["some", "w"], ["product"], "fc"),
        N("Add", ["product", "b"], ["sum"], "bias"),
        N("Tanh", ["sum"], ["act"], "act"),
        N("Mul", ["act", "act"], ["squared"], "square"),
        N("ReduceSum", ["squared", "zero_axis"], ["total"], "reduce", keepdims=0),
        N("Transpose", ["places"], ["targets"], "targets", perm=[1, 0]),
        N("MatMul", ["x", "w"], ["base"], "base"),
        N("ScatterND", ["base", "targets", "squared"], ["y"], "put"),
    ]
    constants = [array("w", random(16, 8)), array("b", random(8, seed=1)), array("zero_axis", np.array([0]))]
    outputs = [info("y", F32, ["n", 8]), info("total", F32, [8]), info("places", I64, [1, "m"])]
    return model_of(nodes, [info("x", F32, ["n", 16]), info("keep", BOOL, ["n"])], outputs, constants)


def detector() -> onnx.ModelProto:
    """image f32 [1, 3, 16, 16] → found f32 [k, 4], score f32 [k], map f32 [1, 8, 8, 8]: a head, suppression, gathers.

    The feature map of the head, channels last in memory, is used again once the boxes are known.
    """
    nodes = [
        N("Conv", ["image", "w0"], ["c0"], "stem", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        N("Relu", ["c0"], ["features"], "stem_act"),
        N("Conv", ["features", "w_box"], ["box_map"], "box_head", kernel_shape=[1, 1]),
        N("Reshape", ["box_map", "box_shape"], ["box_rows"], "box_rows"),
        N("Transpose", ["box_rows"], ["boxes"], "boxes", perm=[0, 2, 1]),
        N("Conv", ["features", "w_score"], ["score_map"], "score_head", kernel_shape=[1, 1]),
        N("Reshape", ["score_map", "score_shape"], ["logits"], "score_rows"),
        N("Sigmoid", ["logits"], ["scores"], "scores"),
        N("NonMaxSuppression", ["boxes", "scores", "most", "overlap", "limit"], ["chosen"], "nms"),
        N("Gather", ["chosen", "two"], ["index"], "index", axis=1),
        N("Squeeze", ["boxes", "zero_axis"], ["flat_boxes"], "flat_boxes"),
        N("Gather", ["flat_boxes", "index"], ["found_boxes"], "take_boxes", axis=0),
        N("Mul", ["found_boxes", "scale"], ["found"], "rescale"),
        N("Reshape", ["scores", "flat"], ["flat_scores"], "flat_scores"),
        N("Gather", ["flat_scores", "index"], ["score"], "take_scores", axis=0),
        N("ReduceSum", ["score", "zero_axis"], ["weight"], "weight", keepdims=1),
        N("Mul", ["features", "weight"], ["weighted"], "weigh"),
        N("Conv", ["weighted", "w1"], ["map"], "last", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    constants = [
        array("w0", random(8, 3, 3, 3)), array("w_box", random(4, 8, 1, 1, seed=1)),
        array("w_score", random(1, 8, 1, 1, seed=2)), array("w1", random(8, 8, 3, 3, seed=3)),
        array("box_shape", np.array([1, 4, 64])), array("score_shape", np.array([1, 1, 64])),
        array("most", np.array([20])), array("overlap", np.float32([0.3])), array("limit", np.float32([0.5])),
        array("two", np.int64(2)), array("zero_axis", np.array([0])), array("flat", np.array([-1])),
        array("scale", np.float32([2, 2, 3, 3])),
    ]  # fmt: skip
    outputs = [info("found", F32, ["k", 4]), info("score", F32, ["k"]), info("map", F32, [1, 8, 8, 8])]
    return model_of(nodes, [info("image", F32, [1, 3, 16, 16])], outputs, constants)


def twice() -> onnx.ModelProto:
    """x f32 [20, 6] → y f32 [m, 6], most f32 []: rows with a positive start, of these the ones with a positive sum."""
    nodes = [
        N("Gather", ["x", "zero"], ["start"], "start", axis=1),
        N("Greater", ["start", "nothing"], ["positive"], "positive"),
        N("Compress", ["x", "positive"], ["first"], "first", axis=0),
        N("Exp", ["first"], ["grown"], "grow"),
        N("Sub", ["grown", "one"], ["shifted"], "shift"),
        N("ReduceSum", ["shifted", "one_axis"], ["sums"], "sums", keepdims=0),
        N("Greater", ["sums", "nothing"], ["again"], "again"),
        N("NonZero", ["again"], ["places"], "places"),
        N("Squeeze", ["places", "zero_axis"], ["rows"], "rows"),
        N("Gather", ["shifted", "rows"], ["second"], "second", axis=0),
        N("Mul", ["second", "half"], ["y"], "halve"),
        N("ReduceSum", ["second"], ["most"], "most", keepdims=0),
    ]
    constants = [
        array("zero", np.int64(0)), array("nothing", np.float32(0)), array("one", np.float32(1)),
        array("one_axis", np.array([1])), array("zero_axis", np.array([0])), array("half", np.float32(0.5)),
    ]  # fmt: skip
    return model_of(nodes, [info("x", F32, [20, 6])], [info("y", F32, ["m", 6]), info("most", F32, [])], constants)


def guarded() -> onnx.ModelProto:
    """x f32 [12, 8], keep bool [12], flag bool [] → y f32 [8]: the kept rows' sum through a layer, or the mean."""
    then = helper.make_graph(
        [
            N("NonZero", ["keep"], ["places"], "find"),
            N("Squeeze", ["places", "zero_axis"], ["rows"], "flat"),
            N("Gather", ["x", "rows"], ["some"], "take", axis=0),
            N("MatMul", ["some", "w"], ["product"], "fc"),
            # Five rows are a must in this branch alone.
            N("Add", ["product", "five"], ["sum"], "bias"),
            N("ReduceSum", ["sum", "zero_axis"], ["then_out"], "then_sum", keepdims=0),
        ],
        "then", [], [info("then_out", F32, [8])],
    )  # fmt: skip
    other = helper.make_graph(
        [N("ReduceMean", ["x", "zero_axis"], ["else_out"], "mean", keepdims=0)], "else", [],
        [info("else_out", F32, [8])],
    )  # fmt: skip
    nodes = [
        N("If", ["flag"], ["merged"], "choice", then_branch=then, else_branch=other),
        N("Neg", ["merged"], ["y"], "end"),
    ]
    inputs = [info("x", F32, [12, 8]), info("keep", BOOL, [12]), info("flag", BOOL, [])]
    constants = [array("w", random(8, 8)), array("five", random(5, 8, seed=1)), array("zero_axis", np.array([0]))]
    return model_of(nodes, inputs, [info("y", F32, [8])], constants)


def counted() -> onnx.ModelProto:
    """count i64 [], x f32 [3, 40] → y f32 [3, m]: as many columns as an input says, turned and scaled."""
    nodes = [
        N("Range", ["start", "count", "step"], ["numbers"], "numbers"),
        N("Gather", ["x", "numbers"], ["columns"], "columns", axis=1),
        N("Cast", ["numbers"], ["weights"], "weights", to=F32),
        N("Sin", ["weights"], ["waves"], "waves"),
        N("Mul", ["columns", "waves"], ["scaled"], "scale"),
        N("Transpose", ["scaled"], ["turned"], "turn", perm=[1, 0]),
        N("MatMul", ["turned", "w"], ["product"], "fc"),
        N("Transpose", ["product"], ["y"], "back", perm=[1, 0]),
    ]
    constants = [array("start", np.int64(0)), array("step", np.int64(1)), array("w", random(3, 3))]
    return model_of(nodes, [info("count", I64, []), info("x", F32, [3, 40])], [info("y", F32, [3, "m"])], constants)


def filled() -> onnx.ModelProto:
    """keep bool [20], x f32 [1, 8] → y f32 [m, 8]: as many rows as are kept, whichever they are."""
    nodes = [
        N("NonZero", ["keep"], ["places"], "find"),
        N("Shape", ["places"], ["count"], "count", start=1, end=2),
        N("Concat", ["count", "width"], ["shape"], "shape", axis=0),
        N("Expand", ["x", "shape"], ["rows"], "expand"),
        N("Softmax", ["rows"], ["y"], "soft", axis=1),
    ]
    inputs = [info("x", F32, [1, 8]), info("keep", BOOL, [20])]
    return model_of(nodes, inputs, [info("y", F32, ["m", 8])], [array("width", np.array([8]))])


LATE = {f.__name__: f for f in (selected_rows, detector, twice, guarded, counted, filled)}
