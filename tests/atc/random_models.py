"""Random ONNX models for the whole pipeline: every operator draws its operands from what exists and fits it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

MOST_ELEMENTS = 20_000


@dataclass
class Tensor:
    """A float tensor of the model: its name and shape at the sizes that the test runs."""

    name: str
    shape: tuple[int, ...]


@dataclass
class Builder:
    """Adds nodes; `batch` names the leading dim of the inputs where the model is symbolic."""

    rng: np.random.Generator
    batch: str | None
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    pool: list[Tensor] = field(default_factory=list)

    def pick(self, *items: object) -> object:
        return items[int(self.rng.integers(len(items)))]

    def const(self, array: np.ndarray) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def floats(self, *shape: int, scale: float = 1.0) -> str:
        return self.const((self.rng.standard_normal(shape) * scale).astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.const(np.array(values, np.int64))

    def add(self, op: str, operands: list[str], shape: tuple[int, ...], **attrs: object) -> Tensor:
        result = Tensor(f"t{len(self.nodes)}", shape)
        self.nodes.append(helper.make_node(op, operands, [result.name], name=f"{op}_{len(self.nodes)}", **attrs))
        self.pool.append(result)
        return result

    def operand(self, wanted: Callable[[Tensor], bool] = lambda t: True) -> Tensor | None:
        fitting = [t for t in self.pool if wanted(t)]
        # Later tensors more often, so that chains form.
        return fitting[-1 - int(min(self.rng.geometric(0.35) - 1, len(fitting) - 1))] if fitting else None


def unary(b: Builder) -> None:
    x = b.operand()
    assert x is not None
    op = b.pick("Relu", "Sigmoid", "Tanh", "Neg", "Abs", "Erf", "Softplus", "HardSwish", "HardSigmoid", "LeakyRelu",
                "Elu", "Selu", "Sin", "Cos", "Floor", "Ceil", "Round", "Softsign", "Mish", "Identity", "Sign")  # fmt: skip
    b.add(str(op), [x.name], x.shape)


def binary(b: Builder) -> None:
    x = b.operand()
    assert x is not None
    op = str(b.pick("Add", "Sub", "Mul", "Max", "Min", "Add", "Mul"))
    y = b.operand(lambda t: fits(t.shape, x.shape))
    if y is None or b.rng.random() < 0.4:
        shape = tuple(d if b.rng.random() < 0.6 and (i or not b.batch) else 1 for i, d in enumerate(x.shape))
        names = [x.name, b.floats(*shape[int(b.rng.integers(len(shape) + 1)):])]
    else:
        names = [x.name, y.name]
    b.add(op, names[:: int(b.pick(1, -1))], x.shape)  # type: ignore[call-overload]


def fits(small: tuple[int, ...], large: tuple[int, ...]) -> bool:
    return len(small) <= len(large) and all(s in (1, d) for s, d in zip(small[::-1], large[::-1], strict=False))


def select(b: Builder) -> None:
    x = b.operand()
    assert x is not None
    flag = f"b{len(b.nodes)}"
    b.nodes.append(helper.make_node(str(b.pick("Greater", "Less", "GreaterOrEqual")), [x.name, b.floats()], [flag]))
    b.add("Where", [flag, x.name, b.floats(*x.shape[1:][-1:])], x.shape)


def clip(b: Builder) -> None:
    x = b.operand()
    assert x is not None
    low = b.const(np.float32(-0.7)) if b.rng.random() < 0.7 else ""
    b.add("Clip", [x.name, low, b.const(np.float32(1.1))], x.shape)


def convolution(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) in (3, 4) and min(t.shape[2:]) > 1)
    if x is None:
        return
    rank, channels = len(x.shape) - 2, x.shape[1]
    group = int(b.pick(1, 1, 1, channels, 2 if channels % 2 == 0 else 1))  # type: ignore[call-overload]
    features = channels if group == channels else group * int(b.rng.integers(1, 12))
    kernel = [int(b.rng.integers(1, min(4, d) + 1)) for d in x.shape[2:]]
    strides = [int(b.pick(1, 1, 2)) for _ in range(rank)]  # type: ignore[call-overload]
    pads = [int(b.rng.integers(0, k)) for k in (*kernel, *kernel)]
    out = [(d + pads[i] + pads[rank + i] - kernel[i]) // strides[i] + 1 for i, d in enumerate(x.shape[2:])]
    each = channels // group
    names = [x.name, b.floats(features, each, *kernel, scale=1 / np.sqrt(each * np.prod(kernel)))]
    if b.rng.random() < 0.6:
        names.append(b.floats(features))
    b.add("Conv", names, (x.shape[0], features, *out), kernel_shape=kernel, strides=strides, pads=pads, group=group)


def transposed_convolution(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) == 4 and np.prod(t.shape) < 3000)
    if x is None:
        return
    kernel, stride, features = int(b.rng.integers(1, 4)), int(b.pick(1, 2)), int(b.rng.integers(1, 9))  # type: ignore[call-overload]
    out = [(d - 1) * stride + kernel for d in x.shape[2:]]
    weight = b.floats(x.shape[1], features, kernel, kernel, scale=1 / np.sqrt(x.shape[1]))
    b.add("ConvTranspose", [x.name, weight], (x.shape[0], features, *out), kernel_shape=[kernel] * 2, strides=[stride] * 2)


def pooling(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) == 4 and min(t.shape[2:]) >= 2)
    if x is None:
        return
    if b.rng.random() < 0.3:
        b.add(str(b.pick("GlobalAveragePool", "GlobalMaxPool")), [x.name], (*x.shape[:2], 1, 1))
        return
    stride = int(b.pick(1, 2))  # type: ignore[call-overload]
    out = [(d + 1 - 2) // stride + 1 for d in x.shape[2:]]
    op = str(b.pick("MaxPool", "AveragePool"))
    b.add(op, [x.name], (*x.shape[:2], *out), kernel_shape=[2, 2], strides=[stride] * 2, pads=[1, 0, 0, 1])


def normalisation(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2 and t.shape[1] > 1)
    if x is None:
        return
    c = x.shape[1]
    if b.rng.random() < 0.5:
        variance = b.const((b.rng.random(c) + 0.5).astype(np.float32))
        b.add("BatchNormalization", [x.name, b.floats(c), b.floats(c), b.floats(c), variance], x.shape)
    else:
        b.add("LayerNormalization", [x.name, b.floats(x.shape[-1]), b.floats(x.shape[-1])], x.shape, axis=-1)


def softmax(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2)
    if x is not None:
        b.add(str(b.pick("Softmax", "LogSoftmax")), [x.name], x.shape, axis=int(b.rng.integers(1, len(x.shape))))


def reduction(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2)
    if x is None:
        return
    axes = sorted({int(b.rng.integers(1, len(x.shape))) for _ in range(2)})
    keep = int(b.rng.random() < 0.6)
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes)
    op = str(b.pick("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceSumSquare"))
    b.add(op, [x.name, b.ints(*axes)], shape, keepdims=keep)


def matmul(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2)
    if x is None:
        return
    k, n = x.shape[-1], int(b.rng.integers(1, 40))
    b.add("MatMul", [x.name, b.floats(k, n, scale=1 / np.sqrt(k))], (*x.shape[:-1], n))


def product(b: Builder) -> None:
    """A product of two run-time operands."""
    x = b.operand(lambda t: len(t.shape) >= 3 and np.prod(t.shape) * t.shape[-2] < 300_000)
    if x is None:
        return
    order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
    y = b.add("Transpose", [x.name], tuple(x.shape[a] for a in order), perm=order)
    b.add("MatMul", [x.name, y.name], (*x.shape[:-1], x.shape[-2]))


def transpose(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 3)
    if x is None:
        return
    perm = [0, *(1 + int(a) for a in b.rng.permutation(len(x.shape) - 1))]
    b.add("Transpose", [x.name], tuple(x.shape[a] for a in perm), perm=perm)


def reshape(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2)
    if x is None:
        return
    rest = int(np.prod(x.shape[1:]))
    cut = int(b.pick(*[d for d in range(1, rest + 1) if rest % d == 0]))  # type: ignore[call-overload]
    shape = (x.shape[0], cut, rest // cut)
    b.add("Reshape", [x.name, b.ints(0, cut, -1)], shape)


def squeeze(b: Builder) -> None:
    x = b.operand(lambda t: 1 < len(t.shape) < 5)
    if x is None:
        return
    axis = int(b.rng.integers(1, len(x.shape) + 1))
    b.add("Unsqueeze", [x.name, b.ints(axis)], (*x.shape[:axis], 1, *x.shape[axis:]))


def join(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2)
    if x is None:
        return
    axis = int(b.rng.integers(1, len(x.shape)))
    y = b.operand(lambda t: len(t.shape) == len(x.shape) and t.shape[:axis] == x.shape[:axis]
                  and t.shape[axis + 1:] == x.shape[axis + 1:])  # fmt: skip
    assert y is not None
    b.add("Concat", [x.name, y.name], (*x.shape[:axis], x.shape[axis] + y.shape[axis], *x.shape[axis + 1 :]), axis=axis)


def cut(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2 and max(t.shape[1:]) > 2)
    if x is None:
        return
    axis = 1 + int(np.argmax(x.shape[1:]))
    start, step = int(b.rng.integers(0, 2)), int(b.pick(1, 1, 2))  # type: ignore[call-overload]
    count = len(range(start, x.shape[axis], step))
    names = [x.name, b.ints(start), b.ints(2**31), b.ints(axis), b.ints(step)]
    b.add("Slice", names, (*x.shape[:axis], count, *x.shape[axis + 1 :]))


def split(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2 and t.shape[1] > 2)
    if x is None:
        return
    first = int(b.rng.integers(1, x.shape[1]))
    sizes, number = [first, x.shape[1] - first], len(b.nodes)
    parts = [Tensor(f"s{number}_{i}", (x.shape[0], n, *x.shape[2:])) for i, n in enumerate(sizes)]
    b.nodes.append(helper.make_node("Split", [x.name, b.ints(*sizes)], [p.name for p in parts], axis=1))
    b.pool += parts


def pad(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2 and t.shape[-1] > 2)
    if x is None:
        return
    before, after = int(b.rng.integers(0, 3)), int(b.rng.integers(0, 3))
    mode = str(b.pick("constant", "edge", "reflect"))
    widths = [0] * (len(x.shape) - 1)
    b.add("Pad", [x.name, b.ints(*widths, before, *widths, after)], (*x.shape[:-1], x.shape[-1] + before + after), mode=mode)


def gather(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2)
    if x is None:
        return
    axis = int(b.rng.integers(1, len(x.shape)))
    rows = b.rng.integers(-x.shape[axis], x.shape[axis], int(b.rng.integers(1, 5)))
    b.add("Gather", [x.name, b.ints(*map(int, rows))], (*x.shape[:axis], len(rows), *x.shape[axis + 1 :]), axis=axis)


def resize(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) == 4 and np.prod(t.shape) < 4000)
    if x is None:
        return
    mode = str(b.pick("nearest", "linear"))
    scales = b.const(np.array([1, 1, 2, 2], np.float32))
    b.add("Resize", [x.name, "", scales], (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3]), mode=mode)


def expand(b: Builder) -> None:
    x = b.operand(lambda t: len(t.shape) >= 2 and 1 in t.shape[1:] and np.prod(t.shape) < 4000)
    if x is None:
        return
    shape = tuple(3 if i and d == 1 else d for i, d in enumerate(x.shape))
    b.add("Expand", [x.name, b.ints(1, *shape[1:])], shape)


STEPS = [unary] * 5 + [binary] * 6 + [convolution] * 5 + [matmul] * 3 + [
    select, clip, transposed_convolution, pooling, pooling, normalisation, normalisation, softmax, reduction, reduction,
    product, transpose, transpose, reshape, reshape, squeeze, join, join, cut, split, pad, gather, resize, expand,
]  # fmt: skip


def random_model(seed: int, steps: int = 18) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of about so many nodes with inputs; every other one has a symbolic batch. All leaves are outputs."""
    rng = np.random.default_rng(seed)
    b = Builder(rng, "batch" if seed % 2 else None)
    n = int(rng.integers(1, 4))
    for shape in ((n, int(rng.integers(1, 17)), int(rng.integers(3, 14)), int(rng.integers(3, 14))), (n, 7, 24)):
        b.inputs.append(Tensor(f"x{len(b.inputs)}", shape))
    b.pool = list(b.inputs)
    while len(b.nodes) < steps:
        STEPS[int(rng.integers(len(STEPS)))](b)
        b.pool = [t for t in b.pool if 0 < np.prod(t.shape) < MOST_ELEMENTS]
    read = {i for node in b.nodes for i in node.input}
    leaves = [o for node in b.nodes for o in node.output if o not in read and not o.startswith("b")]
    wires = [
        helper.make_tensor_value_info(t.name, TensorProto.FLOAT, [b.batch or t.shape[0], *t.shape[1:]])
        for t in b.inputs
    ]
    graph = helper.make_graph(b.nodes, "random", wires, [onnx.ValueInfoProto(name=o) for o in leaves], b.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    arrays = {t.name: rng.standard_normal(t.shape).astype(np.float32) for t in b.inputs}
    return onnx.shape_inference.infer_shapes(model), arrays
