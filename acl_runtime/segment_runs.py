"""A segment in a session: its bindings by sizes, its run states that are not in use, and the arenas of the session."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from acl_runtime.binding import Binder, Binding
from acl_runtime.dims_of_shapes import TensorSpec, solve_dims, solve_late_dims
from acl_runtime.executor import Executor, aligned_zeros
from acl_runtime.gear_sizes import require_gear
from acl_runtime.loop_runs import LoopRuns
from acl_runtime.run_state import RunState
from acl_runtime.segment import LoadedSegment
from tensor_types.dims import Dim
from tensor_types.errors import ResourceLimit

_MAX_BINDINGS = 64


class Arenas:
    """Memory for intermediate tensors that no execution uses.

    It belongs to the session, so that many shapes and many segments do not need many arenas.
    """

    def __init__(self) -> None:
        self.free: list[np.ndarray] = []
        self._lock = threading.Lock()

    def take(self, nbytes: int, last: np.ndarray) -> np.ndarray:
        """At least `nbytes` of u8: `last` if it is free and fits, another one or a new one. ResourceLimit."""
        with self._lock:
            if self.free and self.free[-1] is last and last.nbytes >= nbytes:
                return self.free.pop()
            fitting = [a for a in self.free if a.nbytes >= nbytes]
            found = next((a for a in fitting if a is last), None)
            if found is None and fitting:
                found = min(fitting, key=lambda a: a.nbytes)
            # One that is too small gives way to the larger one.
            spent = found if found is not None else (self.free[-1] if self.free else None)
            self.free = [a for a in self.free if a is not spent]
        try:
            return aligned_zeros(nbytes) if found is None else found
        except MemoryError:
            raise ResourceLimit(
                f"{nbytes} bytes for intermediate tensors cannot be had", remedy="use smaller input shapes"
            ) from None

    def give(self, arena: np.ndarray) -> None:
        """An execution has ended."""
        with self._lock:
            self.free.append(arena)


class SegmentRuns:
    """What a session holds of one segment. Several threads may use it at a time."""

    def __init__(
        self, segment: LoadedSegment, executor: Executor, arenas: Arenas, keep: bool,
        gears: Sequence[Mapping[str, int]] = (), bodies: Sequence[LoopRuns] = (), own_dims: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """`gears` are the sizes that its dims may have together; none: any in their ranges. `bodies` are those of the
        model's loops. `own_dims` are not told by inputs and are 0 unless `bind_dims` gets them."""
        self.plan = segment.plan
        self.free: list[RunState] = []
        self._binder = Binder(segment)
        self._executor = executor
        self._arenas = arenas
        self._keep = keep
        self._gears = gears
        self._bodies = bodies
        values = [self.plan.values[n] for n in self.plan.inputs]
        self._inputs = [TensorSpec(v.name, v.dtype, v.shape) for v in values]
        first: dict[tuple[Dim, ...] | None, int] = {}
        self._like = [first.setdefault(spec.shape, n) for n, spec in enumerate(self._inputs)]
        """For each input the first one of the same shape."""
        self._own = dict.fromkeys(own_dims, 0)
        self._told = {name: bounds for name, bounds in self.plan.dims.items() if name not in self._own}
        self._bindings: OrderedDict[object, Binding] = OrderedDict()
        self._lock = threading.Lock()

    def solve(self, shapes: tuple[tuple[int, ...], ...]) -> dict[str, int]:
        """The dims that these shapes of the model's inputs tell. InvalidModel."""
        # Caches of all layers say the same.
        kept = [n for n, like in enumerate(self._like) if like == n or shapes[n] != shapes[like]]
        dims = solve_dims([self._inputs[n] for n in kept], [shapes[n] for n in kept], self._told)
        require_gear(self._gears, dims)
        return dims

    def bind_dims(self, dims: Mapping[str, int]) -> Binding:
        """The binding for these dims, all of the segment. InvalidModel."""
        return self._bound(tuple(dims.items()), lambda: dims)

    def bind(self, shapes: tuple[tuple[int, ...] | None, ...], known: Mapping[str, int] | None = None) -> Binding:
        """The binding for these shapes of the inputs: those of the model, or with the dims `known` so far.

        The shape of a tensor that was not made, because its branch did not run, is None. InvalidModel.
        """
        if known is None:
            return self._bound(shapes, lambda: {**self.solve(shapes), **self._own})  # type: ignore[arg-type]
        key = (shapes, *known.items())
        return self._bound(key, lambda: solve_late_dims(self._inputs, shapes, self.plan.dims, known))

    def _bound(self, key: object, dims_of: Callable[[], Mapping[str, int]]) -> Binding:
        with self._lock:
            binding = self._bindings.get(key)
            if binding is not None:
                self._bindings.move_to_end(key)
                return binding
        binding = self._binder.bind(dims_of(), self._executor.threads, self._keep)
        with self._lock:
            self._bindings[key] = binding
            while len(self._bindings) > _MAX_BINDINGS:
                self._bindings.popitem(last=False)
        return binding

    def start(self, binding: Binding) -> RunState:
        """A run state with an arena of the session, both of which the caller gives back."""
        with self._lock:
            if self.free and self.free[-1].binding is binding:
                state: RunState | None = self.free.pop()
            else:
                bound = [n for n, s in enumerate(self.free) if s.binding is binding]
                state = self.free.pop(bound[-1] if bound else -1) if self.free else None
        if state is None:
            state = RunState(self._binder, self._executor, self._bodies)
        state.attach(binding, self._arenas.take(binding.arena_bytes, state.arena))
        return state

    def give(self, state: RunState) -> None:
        """The run has ended, and no other segment reads the tensors of this state any more."""
        state.release()
        with self._lock:
            self.free.append(state)
