"""The only way to change a graph after import: every redirected use says how the new value relates to the old one.

    rewriter = Rewriter(graph)
    product = rewriter.insert("Mul", [x, rewriter.constant(scale)], before=node)   # shapes come from the op's rule
    rewriter.replace(node.output, product.output, "same")
    rewriter.erase_dead()

Use lists, the names of graph outputs and `graph.origins` stay right. Order of nodes is the caller's part only in that
`before` must precede all uses; for a matched pattern, "before its root" always does.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np

from graph_opt.ir.core import RELATIONS, AttrValue, Graph, Guards, Node, Origin, Value
from graph_opt.ir.infer import infer_node
from graph_opt.ir.ops.registry import is_fresh
from graph_opt.ir.order import Order, Outputs
from graph_opt.ir.outline import Outline, outline
from graph_opt.ir.reads import captured_values, nested_bodies, read_values
from tensor_types.dims import names
from tensor_types.dtypes import DType, from_numpy
from tensor_types.recipes import Recipe


def combine(first: str, second: str) -> str:
    """The relation of a source tensor to c, given its relation to b and that of b to c: the weaker of the two."""
    return max(first, second, key=RELATIONS.index)


class Rewriter:
    """Changes one graph and keeps its invariants. While it is in use, nothing else may change origins or names."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._control = [n for n in graph.nodes if n.subgraphs and n.op != "Fused"]
        self._nested = [b for n in self._control for b in nested_bodies(n)]

    @cached_property
    def _holders(self) -> dict[str, set[str]]:
        """By name of a value, the source tensors whose origin refers to it; most passes never ask."""
        holders: dict[str, set[str]] = {}
        for source, origin in self.graph.origins.items():
            if origin.value is not None:
                holders.setdefault(origin.value, set()).add(source)
        return holders

    @property
    def public(self) -> set[Value]:
        """`public_values` of the graph."""
        return {*self.graph.outputs, *(v for body in self._nested for v in body.outputs)}

    # --- making values and nodes

    def constant(
        self, data: np.ndarray | Recipe | float | int, name: str = "const", dtype: DType | None = None
    ) -> Value:
        """A new constant of the array's own dtype, or of `dtype`; a recipe has its own."""
        if isinstance(data, Recipe):
            return self.graph.add_constant(name, data, data.dtype)
        array = np.asarray(data, dtype.numpy if dtype else None)
        return self.graph.add_constant(name, array, dtype or from_numpy(array.dtype))

    def insert(
        self,
        op: str,
        inputs: Iterable[Value | None],
        attrs: Mapping[str, AttrValue] | None = None,
        *,
        before: Node | None,
        outputs: Sequence[str] = (),
        name: str = "",
        subgraphs: Mapping[str, Graph] | None = None,
        guards: Guards | None = None,
        instead: Value | None = None,
    ) -> Node:
        """A new node before `before` (None: at the end), its outputs typed by the op's rule.

        `outputs` are the wished names of the outputs; by default one, named after the node or the op. `guards` are by
        default those of `before`. The first output keeps the dims that only data decides of `instead`.
        """
        if guards is None:
            guards = () if before is None else before.guards
        operands = list(inputs)
        like = next((v.dtype for v in operands if v is not None), from_numpy(np.dtype(np.float32)))
        values = [self.graph.add_value(o, like, None) for o in (outputs or [name or op.lower()])]
        if instead is not None:
            values[0].shape = instead.shape
        node = self.graph.add_node(
            op, operands, values, attrs, name=name, before=before, subgraphs=subgraphs, guards=guards
        )
        if node.subgraphs and op != "Fused":
            self._control.append(node)
            self._nested.extend(nested_bodies(node))
        infer_node(self.graph, node)
        return node

    # --- redirecting uses

    def replace(self, old: Value, new: Value, relation: str = "same", *, retype: bool = False) -> None:
        """Redirects every use of `old` to `new`, graph outputs included, and with them the origins.

        `relation` says what `new` holds of `old`. A graph output keeps its public name: `new` takes the name over, or
        an Identity of that name is added when `new` is an input, a constant or itself an output. Uses by the producer
        of `new` stay, so that a value may be replaced by a function of itself.
        ValueError, with nothing changed, if `new` has another dtype or another shape; extents that only a run decides
        may become known. With `retype`, whose caller types the users anew, only a graph output has to keep its type.
        """
        if old is new:
            return
        if (not retype or self.graph.is_output(old)) and not _is_refined_by(old, new):
            raise ValueError(f"{old} cannot become {new}")
        if relation not in RELATIONS:
            raise ValueError(f"unknown relation {relation!r}; known: {', '.join(RELATIONS)}")
        for node, index in list(old.uses):
            if node is not new.producer:
                node.set_input(index, new)
        for body in self._nested:
            body.outputs.replace(old, new)
        self._move_origins(old, new, relation)
        if self.graph.is_output(old):
            self._replace_output(old, new)

    def redirect(self, uses: Iterable[tuple[Node, int]], new: Value) -> None:
        """Lets some uses read `new` instead; the old value remains the holder of its source tensors."""
        for node, index in list(uses):
            node.set_input(index, new)

    def _replace_output(self, old: Value, new: Value) -> None:
        public = old.name
        self.rename(old, self.graph.fresh_name(f"{public}.old"))
        if new.producer is None or self.graph.is_output(new):
            holder = self.graph.add_value(public, new.dtype, new.shape)
            self.graph.add_node("Identity", [new], [holder], name=f"{public}/identity")
        else:
            holder = new
            self.rename(new, public)
        self.graph.outputs.replace(old, holder)

    def rename(self, value: Value, name: str) -> None:
        """Gives a value another name; ValueError if it is taken."""
        if name == value.name:
            return
        if name in self.graph.values:
            raise ValueError(f"the name {name} is taken")
        del self.graph.values[value.name]
        sources = self._holders.pop(value.name, set())
        value.name = name
        self.graph.values[name] = value
        for source in sources:
            self._set_origin(source, Origin(self.graph.origins[source].relation, name))

    # --- origins

    def _set_origin(self, source: str, origin: Origin) -> None:
        holders = self._holders  # of the state before the change
        old = self.graph.origins.get(source)
        if old is not None and old.value is not None:
            holders.get(old.value, set()).discard(source)
        self.graph.origins[source] = origin
        if origin.value is not None:
            holders.setdefault(origin.value, set()).add(source)

    def _move_origins(self, old: Value, new: Value, relation: str) -> None:
        for source in sorted(self._holders.get(old.name, ())):
            combined = combine(self.graph.origins[source].relation, relation)
            self._set_origin(source, Origin(combined, None if combined == "dead" else new.name))

    def absorb(self, values: Iterable[Value], holder: Value) -> None:
        """Source tensors held by `values` are from now on interior to the kernel that makes `holder`."""
        for value in values:
            self._move_origins(value, holder, "interior")

    def weaken(self, value: Value, relation: str) -> None:
        """A value that was changed in place holds its source tensors only by `relation` from now on."""
        self._move_origins(value, value, relation)

    def _forget(self, value: Value) -> None:
        """A value goes away: what it held is dead, or still known to be folded."""
        for source in list(self._holders.get(value.name, ())):
            folded = self.graph.origins[source].relation == "folded"
            self._set_origin(source, Origin("folded" if folded else "dead", None))

    # --- erasing

    def erase_dead(self, among: Iterable[Node] | None = None) -> bool:
        """Removes nodes (of `among` and what only they use, or of the whole graph) and constants that nothing uses.

        Returns whether anything went. Source tensors that lived there become 'dead'.
        """
        captured = {o for body in self._nested for o in body.outputs}

        def is_kept(value: Value) -> bool:
            return value in self.graph.outputs or value in captured

        pending = list(self.graph.nodes if among is None else among)
        erased: set[Node] = set()
        gone = False
        constants = [] if among is not None else [v for v in self.graph.constants() if not v.uses]
        while pending:
            node = pending.pop()
            if node in erased or any(v.uses or is_kept(v) for v in node.outputs):
                continue
            if self.graph.values.get(node.output.name) is not node.output:
                continue  # it went earlier
            erased.add(node)
            gone = True
            operands = read_values(node)
            release(node)
            self.graph.nodes.remove(node)
            for value in node.outputs:
                self._forget(value)
                del self.graph.values[value.name]
            for value in operands:
                if value.producer is not None:
                    pending.append(value.producer)
                elif value.is_constant and not value.uses:
                    constants.append(value)
        given = set(self.graph.inputs) if constants else set()
        for value in constants:
            if self.graph.values.get(value.name) is value and value not in given and not is_kept(value):
                self._forget(value)
                del self.graph.values[value.name]
                gone = True
        return gone

    # --- outlining and inlining

    def fuse(
        self, nodes: Iterable[Node], family: str, attrs: Mapping[str, AttrValue] | None = None, *, name: str = ""
    ) -> Node:
        """Outlines nodes into one `Fused` node, whose body holds them in graph order; nested `Fused` nodes dissolve.

        The set must be convex: no path may leave it and come back; and all must have the same guards, which become
        those of the fused node (ValueError). `outline` tells its inputs and outputs. Outputs keep their identity and
        name; source tensors inside become 'interior' to the first output. `body.origins` keeps their exact state, so
        that `inline` undoes this.
        """
        members = dict.fromkeys(nodes)
        if any(n.op == "Fused" for n in members):
            flat = [[n] if n.op != "Fused" else self.inline(n) for n in members]
            members = dict.fromkeys(n for part in flat for n in part)
        ordered, followers = self._around(members)
        found = outline(self.graph, ordered, family, attrs, name=name, public=self.public)
        fused, order = self._outlined(found), self.graph.nodes
        order.insert_before(ordered[-1], fused)
        for node in ordered:
            order.remove(node)
        for node in reversed(followers):
            order.remove(node)
            order.insert_after(fused, node)
        return fused

    def fuse_all(self, groups: Iterable[tuple[Sequence[Node], str]]) -> None:
        """Outlines disjoint groups of nodes, each for a family, none of them Fused, in time linear in the graph.

        No circle may be among groups and other nodes (ValueError). A kernel comes as early as the last of its members
        and what it reads allow.
        """
        nodes = list(self.graph.nodes)
        place = {n: i for i, n in enumerate(nodes)}
        ordered = [(sorted(members, key=place.__getitem__), family) for members, family in groups]
        rank = {n: place[members[-1]] for members, _ in ordered for n in members}
        order = _in_order(nodes, rank)
        public = self.public
        fused = {n[-1]: self._outlined(outline(self.graph, n, family, public=public)) for n, family in ordered}
        self.graph.nodes = Order(fused.get(n, n) for n in order)

    def _outlined(self, found: Outline) -> Node:
        """Puts the node of an outline in the place of its members, in everything but the list of nodes."""
        fused, body = found.node, found.node.subgraphs["body"]
        if not fused.outputs:
            raise ValueError("nothing outside the set uses its values")
        if any(n.guards != fused.guards for n in found.members):
            raise ValueError("the nodes run under different guards")
        for node in found.members:
            release_operands(node)
            rewire(node, found.inner)
        made = [v for n in found.members for v in n.outputs]
        inside = [v for v in made if v not in fused.outputs]
        held = (*made, *found.scalars)
        body.origins = {s: self.graph.origins[s] for v in held for s in sorted(self._holders.get(v.name, ()))}
        self.absorb(inside, fused.output)
        for value in inside:
            value.producer = None  # the memory of the members is free at once
            del self.graph.values[value.name]
        for index, value in fused.operands():
            value.uses[fused, index] = None
        for value in fused.outputs:
            value.producer = fused
        for value in found.scalars:
            if not value.uses and not self.graph.is_output(value):
                self.absorb([value], fused.output)
                self.graph.values.pop(value.name, None)
        return fused

    def _around(self, members: Mapping[Node, None]) -> tuple[list[Node], list[Node]]:
        """The set in graph order, and the nodes between its first and last that depend on it and must follow it.

        ValueError if one of these feeds the set. Looks at nothing else of what lies between, so the cost is that of
        the set and its followers.
        """
        order = self.graph.nodes
        if any(node not in order for node in members):
            raise ValueError("a node to be fused is not in the graph")
        ordered = sorted(members, key=order.place)
        last = order.place(ordered[-1]) if ordered else (0, 0)
        # A use inside the body of a control node is one of the control node.
        users: dict[Value, list[Node]] = {}
        for control in self._control:
            for value in captured_values(control) if control in order else ():
                users.setdefault(value, []).append(control)
        followers: dict[Node, tuple[int, int]] = {}
        pending = list(ordered)
        while pending:
            node = pending.pop()
            for value in node.outputs:
                for user in (*(u for u, _ in value.uses), *users.get(value, ())):
                    if user in members:
                        if node not in members:
                            raise ValueError(
                                f"the set is not convex: {user} needs a value that leaves the set and returns"
                            )
                    elif user not in followers and user in order and (place := order.place(user)) < last:
                        followers[user] = place
                        pending.append(user)
        return ordered, sorted(followers, key=lambda n: followers[n])

    def inline(self, fused: Node) -> list[Node]:
        """Puts the body of a `Fused` node in its place, under its guards; interior source tensors surface.

        Returns the new nodes.
        """
        body = fused.subgraphs["body"]
        outer: dict[Value, Value] = {}
        for inner, value in zip(body.inputs, fused.inputs, strict=True):
            if value is not None:
                outer[inner] = value
        outputs = dict(zip(body.outputs, fused.outputs, strict=True))
        for inner in body.values.values():
            if inner in outputs:
                outer[inner] = outputs[inner]
            elif inner not in outer:
                outer[inner] = self._surface(inner)
        guards = fused.guards
        release_operands(fused)
        nodes: list[Node] = []
        for node in body.nodes:
            operands = [None if v is None else outer[v] for v in node.inputs]
            rewire(node, outer)
            nodes.append(
                self.graph.add_node(
                    node.op, operands, [outer[v] for v in node.outputs], node.attrs, name=node.name,
                    subgraphs=node.subgraphs, guards=guards, before=fused,
                )
            )  # fmt: skip
        self.graph.nodes.remove(fused)
        for source, origin in body.origins.items():
            inner_value = None if origin.value is None else body.values.get(origin.value)
            current = self.graph.origins.get(source)
            if inner_value is not None and current is not None and current.relation in ("interior", "folded"):
                self._set_origin(source, Origin(origin.relation, outer[inner_value].name))
        return nodes

    def _surface(self, inner: Value) -> Value:
        known = self.graph.values.get(inner.name)
        if inner.recipe is not None and known is not None and known.recipe is inner.recipe:
            return known
        value = self.graph.add_value(inner.name, inner.dtype, inner.shape, data=inner.recipe, format=inner.format)
        value.content = inner.content
        return value


def _is_refined_by(old: Value, new: Value) -> bool:
    """Whether `new` has the type of `old`, or tells more of the extents that only a run decides."""
    if old.dtype != new.dtype:
        return False
    if old.shape is None or new.shape is None or old.shape == new.shape:
        return True
    return len(old.shape) == len(new.shape) and all(
        a == b or any(map(is_fresh, names(a) | names(b))) for a, b in zip(old.shape, new.shape, strict=True)
    )



def _in_order(nodes: Sequence[Node], rank: Mapping[Node, int]) -> list[Node]:
    """Nodes in an order that keeps members of a group, those of equal rank, in one place; each group once, as the
    member whose place is its rank. ValueError if they depend on each other in a circle."""
    places = [rank.get(node, place) for place, node in enumerate(nodes)]
    number = {node: at for node, at in zip(nodes, places, strict=True)}
    readers: dict[int, list[int]] = {at: [] for at in places}
    missing = dict.fromkeys(places, 0)
    for node, at in zip(nodes, places, strict=True):
        for value in read_values(node):
            before = None if value.producer is None else number.get(value.producer)
            if before is not None and before != at:
                readers[before].append(at)
                missing[at] += 1
    ready = [at for at, count in missing.items() if not count]
    heapq.heapify(ready)
    found = []
    while ready:
        at = heapq.heappop(ready)
        found.append(nodes[at])
        for reader in readers[at]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(found) != len(missing):
        raise ValueError("a set is not convex: some node needs a value that leaves the set and returns")
    return found


def release_operands(node: Node) -> None:
    """Takes the node's own uses off its inputs and guards."""
    for index, value in node.operands():
        del value.uses[node, index]
    node.inputs, node.guards = [], ()


def release(node: Node) -> None:
    """Takes the node's uses off its inputs and guards, and off the outer values that its subgraphs read."""
    release_operands(node)
    for body in node.subgraphs.values():
        for inner in list(body.nodes):
            release(inner)


def rewire(node: Node, mapping: Mapping[Value, Value]) -> None:
    """Lets the subgraphs of `node` read other outer values."""
    for body in node.subgraphs.values():
        own = set(body.values.values())
        for inner in body.nodes:
            for index, value in list(inner.operands()):
                if value not in own and value in mapping:
                    inner.set_input(index, mapping[value])
            rewire(inner, mapping)
        body.outputs = Outputs(mapping.get(v, v) if v not in own else v for v in body.outputs)
