"""Operators of the user: `atc.register_op`, the modules that call it, and what a package records of them."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from acl_runtime.aicpu.registry import set_custom
from atc.usage import UsageError
from graph_opt.ir.ops.custom import RESERVED, Signature, TensorType
from graph_opt.ir.ops.registry import Op, declare_custom
from tensor_types.dtypes import from_numpy
from tensor_types.errors import InvalidModel, OpenAtcError, UnsupportedOperator

if TYPE_CHECKING:
    from codegen.targets import Target
    from codegen.tile.ir import Program
    from graph_opt.ir import Graph, Node

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class CustomOperator:
    """A registered operator; `module` is where its functions are defined."""

    signature: Signature
    numpy: Callable[..., Any] | None
    tile: Callable[..., Any] | None
    deterministic: bool
    module: str


_REGISTERED: dict[str, CustomOperator] = {}


def register_op(
    domain: str,
    name: str,
    *,
    infer: Callable[..., Any],
    version: int = 1,
    numpy: Callable[..., Any] | None = None,
    tile: Callable[..., Any] | None = None,
    attributes: Mapping[str, Any] | None = None,
    deterministic: bool = True,
) -> Callable[[Function], Function]:
    """Registers an operator, or registers it anew; as a decorator, it takes the numpy function.

    infer(*inputs, **attributes): (dtype, shape) of the output, or a list of them. An input is a `TensorType` (dtype,
        shape, value of a constant), None when absent; extents are ints or dim expressions. A dtype may also be a numpy
        dtype or a name such as "f32"; an extent None is one that only the data decides.
    numpy(*arrays, **attributes): an array, or a tuple of them. It runs on the AI CPU, folds constants and is what
        `atc compare` holds the operator against. Its inputs must not be written.
    tile(inputs, outputs, target, **attributes): a `codegen.tile` program or its text for these types, or None where
        there is none; parameters are the inputs, then the outputs.
    version: oldest opset of the domain that this holds for. attributes: name -> default, or a Python type where the
        model has to give the attribute; without it, any attribute is taken. deterministic: False keeps nodes from being
        folded or merged.

    UsageError for a name that is not free. Without `numpy` and `tile`, using the decorator registers.
    """
    op = f"{domain}::{name}"
    reserved = sorted(RESERVED & set(attributes or ()))
    if not domain or domain == "ai.onnx" or "::" in domain or not name or "::" in name or reserved:
        raise UsageError(
            f"{op} with {reserved} cannot be registered" if reserved else f"{op} cannot be registered",
            where={"op": op}, remedy="use a domain of your own and other names",
        )  # fmt: skip
    signature = Signature(op, version, None if attributes is None else dict(attributes), infer)
    module = getattr(numpy or tile or infer, "__module__", None) or "__main__"
    registered = CustomOperator(signature, numpy, tile, deterministic, module)

    def with_numpy(function: Function) -> Function:
        _register(replace(registered, numpy=function, module=function.__module__))
        return function

    if numpy is not None or tile is not None:
        _register(registered)
    return with_numpy


def _register(operator: CustomOperator) -> None:
    from codegen.kernels import custom as programs

    op = operator.signature.op
    aicpu = op if operator.numpy is not None else None
    try:
        declare_custom(Op(op, ("inputs*",), {}, operator.signature.rule, "aicpu", aicpu,
                          deterministic=operator.deterministic, custom=True))  # fmt: skip
    except ValueError as error:
        raise UsageError(str(error), where={"op": op}, remedy="use a domain of your own") from None
    set_custom(op, None if operator.numpy is None else _host_function(operator))
    programs.set_custom(op, None if operator.tile is None else _program_function(operator))
    _REGISTERED[op] = operator


def _host_function(operator: CustomOperator) -> Callable[[Sequence[Any], Mapping[str, Any], int], tuple[Any, ...]]:
    """The numpy function as the AI CPU calls it, its results held against the shape rule."""
    signature, function = operator.signature, operator.numpy
    assert function is not None

    def run(inputs: Sequence[Any], attrs: Mapping[str, Any], n_outputs: int) -> tuple[Any, ...]:
        arguments = signature.arguments(attrs)
        try:
            found = function(*inputs, **arguments)
        except OpenAtcError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise _wrong(signature.op, f"{type(error).__name__}: {error}") from error
        results = tuple(_array(r) for r in (found if isinstance(found, tuple) else (found,)))
        if len(results) < n_outputs:
            raise _wrong(signature.op, f"it gives {len(results)} results, the model takes {n_outputs}")
        if all(v is None or isinstance(v, np.ndarray) for v in inputs):
            types = [None if v is None else TensorType(from_numpy(v.dtype), v.shape, v) for v in inputs]
            for result, (dtype, shape) in zip(results, signature.result_types(types, attrs, n_outputs), strict=False):
                if isinstance(result, np.ndarray) and not (from_numpy(result.dtype) == dtype and _fits(result, shape)):
                    given = f"{from_numpy(result.dtype)}{list(result.shape)}"
                    raise _wrong(signature.op, f"it gives {given}, its shape rule says {dtype}{list(shape or ())}")
        return results

    return run


def _fits(array: np.ndarray, shape: Sequence[Any] | None) -> bool:
    if shape is None:
        return True
    return array.ndim == len(shape) and all(d is None or d == n for d, n in zip(shape, array.shape, strict=True))


def _array(result: Any) -> Any:
    return result if isinstance(result, list) or result is None else np.asarray(result)


def _wrong(op: str, reason: str) -> InvalidModel:
    return InvalidModel(
        f"the numpy function is wrong: {reason}", where={"op": op},
        remedy="mend the function numpy or infer that the operator was registered with",
    )  # fmt: skip


def _program_function(
    operator: CustomOperator,
) -> Callable[[Sequence[Any], Sequence[Any], Target, Mapping[str, Any]], Program | str | None]:
    signature, function = operator.signature, operator.tile
    assert function is not None

    def program(
        inputs: Sequence[Any], outputs: Sequence[Any], target: Target, attrs: Mapping[str, Any]
    ) -> Program | str | None:
        made: Program | str | None = function(inputs, outputs, target, **signature.arguments(attrs))
        return made

    return program


def import_operators(modules: Sequence[str]) -> None:
    """Imports modules that register operators: a module's name, or the path of a `.py` file.

    Modules and their neighbours are also found in the current folder, or the file's. UsageError if one cannot be
    imported.
    """
    for given in modules:
        try:
            if given.endswith(".py"):
                _import_file(Path(given))
            else:
                _search(Path.cwd())
                importlib.import_module(given)
        except OpenAtcError:
            raise
        except Exception as error:  # whatever the user's module raises
            raise UsageError(
                f"--custom_op {given}: {type(error).__name__}: {error}", where={"flag": "--custom_op"},
                remedy="name a module that can be imported, or the path of a .py file",
            ) from error  # fmt: skip


def _search(folder: Path) -> None:
    """Last, so that a folder's files hide no installed module."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _import_file(path: Path) -> None:
    name = path.stem
    loaded = getattr(sys.modules.get(name), "__file__", None)
    if name in sys.modules:
        if loaded is None or not os.path.samefile(loaded, path):
            raise ImportError(f"another module is called {name}: rename the file")
        return
    _search(path.resolve().parent)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise


def operators_of(graph: Graph) -> dict[str, dict[str, str]]:
    """What a package records of its custom operators, after lowering: 'Domain::Name' -> module and kind.

    `kind` is "tile" if every node of it is native code, which needs no module to run, else "numpy".
    UnsupportedOperator for a node that neither has a program nor a numpy function.
    """
    found: dict[str, dict[str, str]] = {}
    for node, native in _custom_nodes(graph):
        operator = _REGISTERED[node.op]
        if not native and operator.numpy is None:
            raise UnsupportedOperator(
                "its tile function has no program for this form, and there is no numpy function",
                where={"node": node.name, "op": node.op}, remedy="register it with a numpy function as well",
            )  # fmt: skip
        if not native or node.op not in found:
            found[node.op] = {"module": operator.module, "kind": "tile" if native else "numpy"}
    return dict(sorted(found.items()))


def _custom_nodes(graph: Graph) -> Iterator[tuple[Node, bool]]:
    """Nodes of registered operators, those of subgraphs included, and whether a tile program computes them."""
    for node in graph.nodes:
        native = node.op == "Fused" and node.attrs.get("family") == "custom"
        if native:
            yield node.subgraphs["body"].nodes[0], True
        elif node.op in _REGISTERED:
            yield node, False
        else:
            for body in node.subgraphs.values():
                yield from _custom_nodes(body)


def is_registered(op: str) -> bool:
    """True for 'Domain::Name' that `register_op` knows."""
    return op in _REGISTERED


def has_reference(op: str) -> bool:
    """True if a registered operator has a numpy function."""
    return op in _REGISTERED and _REGISTERED[op].numpy is not None
