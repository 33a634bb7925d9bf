"""Pass of numba's compiler: argument members that are None, as constants.

numba drops the branches for an argument that is None; with this pass it also drops
those for a member of a `NamedTuple`:

    @kernel
    def advance(search):
        if search.phrases is not None:      # no code if the member is None
"""

from typing import Any

from numba.core import ir, types
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.ir_utils import get_definition, guard
from numba.core.types.containers import BaseNamedTuple
from numba.core.untyped_passes import IRProcessing


@register_pass(mutates_CFG=False, analysis_only=False)
class NoneMembers(FunctionPass):
    """Replaces members that are None by the constant."""

    _name = "wfstdec_none_members"

    def __init__(self) -> None:
        super().__init__()

    def run_pass(self, state: Any) -> bool:
        """Look up the types of all members that the function names."""
        definitions, found = state.func_ir._definitions, False
        for block in state.func_ir.blocks.values():
            for one in block.find_insts(ir.Assign):
                if _type_of(state, one.value) == types.none:
                    one.value = ir.Const(None, one.loc)
                    definitions[one.target.name] = [one.value]
                    found = True
        return found


def _type_of(state: Any, value: Any) -> Any:
    if not isinstance(value, ir.Expr) or value.op != "getattr":
        return None
    owner = guard(get_definition, state.func_ir, value.value)
    if isinstance(owner, ir.Arg):
        kind = state.args[owner.index]
    else:
        kind = _type_of(state, owner)
    if isinstance(kind, BaseNamedTuple) and value.attr in kind.fields:
        return kind[kind.fields.index(value.attr)]
    return None


def passes_of(state: Any) -> Any:
    """Return numba's passes, and this one."""
    passes = DefaultPassBuilder.define_nopython_pipeline(state)
    passes.add_pass_after(NoneMembers, IRProcessing)
    passes.finalize()
    return passes


class Compiler(CompilerBase):
    """numba's compiler with this pass."""

    def define_pipelines(self) -> list[Any]:
        """Define the one pipeline."""
        return [passes_of(self.state)]
