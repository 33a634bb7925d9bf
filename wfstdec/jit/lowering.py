"""Turning typed functions into intermediate code, with less of it than numba writes.

Tuples of arrays are passed on from part to part, as the numbers that they consist of:
numba takes them apart at each call, and puts them together in each part. LLVM removes
all of it, but writing, reading and removing it was most of the time of compiling.

    args    a variable that is set once, before all its uses, is no memory
    values  what was just put into a tuple is not taken out of it again
    dead    tuples that nobody looks into are not written down
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir as llvm
from numba.core import ir, typed_passes
from numba.core.analysis import (
    compute_cfg_from_blocks,
    compute_use_defs,
    must_use_alloca,
)
from numba.core.compiler import DefaultPassBuilder
from numba.core.compiler_machinery import register_pass
from numba.core.lowering import Lower


class _Builder(llvm.IRBuilder):
    """Knows what values are made of."""

    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        """A member of an aggregate: what was put in there, if that is known."""
        path = tuple(idx) if isinstance(idx, (tuple, list)) else (idx,)
        while isinstance(agg, llvm.instructions.InsertValue):
            here = tuple(agg.indices)
            # Followed back to the value itself: LLVM would do so too, but has to read
            # all of it first.
            if here == path[: len(here)]:
                agg, path = agg.value, path[len(here) :]
                if not path:
                    return agg
            elif path == here[: len(path)]:  # a part of it was put in
                break
            else:
                agg = agg.aggregate
        return super().extract_value(agg, path, name)


class _Lower(Lower):
    """numba's, with fewer variables in memory."""

    def setup_function(self, fndesc: Any) -> None:
        """Set up a function with a builder of our own."""
        super().setup_function(fndesc)
        self.builder.__class__ = _Builder

    def _find_singly_assigned_variable(self) -> None:
        """Find variables that are no memory: more of them where nothing is counted."""
        super()._find_singly_assigned_variable()
        if not self.flags.nrt and not self.func_ir.func_id.is_generator:
            kept = must_use_alloca(self.blocks)
            self._singly_assigned_vars |= _set_before_use(self.blocks) - kept

    def lower_normal_function(self, fndesc: Any) -> None:
        """Lower, and leave out what nobody uses."""
        super().lower_normal_function(fndesc)
        _drop_unused(self.function)


def _set_before_use(blocks: dict[int, Any]) -> set[str]:
    """Variables with one assignment, that each way to one of their uses passes."""
    assigned: dict[str, list[int]] = {}
    for label, block in blocks.items():
        for assign in block.find_insts(ir.Assign):
            assigned.setdefault(assign.target.name, []).append(label)
    used = compute_use_defs(blocks).usemap
    dominators = compute_cfg_from_blocks(blocks).dominators()
    found = {name for name, labels in assigned.items() if len(labels) == 1}
    for label, names in used.items():
        for name in found & names:
            begin = assigned[name][0]  # numba lowers blocks in the order of labels
            # Else a use could come before the assignment.
            if begin >= label or begin not in dominators[label]:
                found.discard(name)
    return found


def _drop_unused(function: Any) -> None:
    """Leave out aggregates and their members that no instruction takes."""
    kinds = (llvm.instructions.InsertValue, llvm.instructions.ExtractValue)
    used: set[int] = set()
    waiting: list[Any] = []  # what instructions take
    for block in function.blocks:
        for one in block.instructions:
            if isinstance(one, llvm.PhiInstr):
                waiting += [value for value, _ in one.incomings]
            elif not isinstance(one, kinds):
                waiting += one.operands
    # Not one pass: a member may be used by another that nobody uses.
    while waiting:
        value = waiting.pop()
        if isinstance(value, kinds) and id(value) not in used:
            used.add(id(value))
            waiting += value.operands
    for block in function.blocks:
        block.instructions = [
            one
            for one in block.instructions
            if not isinstance(one, kinds) or id(one) in used
        ]


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(typed_passes.BaseNativeLowering):
    """The pass of numba's compiler that does it."""

    _name = "wfstdec_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """Class that lowers a function."""
        return _Lower


def pipeline(state: Any) -> Any:
    """The passes of numba, with our lowering."""
    passes = DefaultPassBuilder.define_nopython_pipeline(state)
    passes.passes = [
        (Lowering, said) if one is typed_passes.NativeLowering else (one, said)
        for one, said in passes.passes
    ]
    passes._finalized = False
    passes.finalize()
    return passes
