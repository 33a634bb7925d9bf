"""Linking of kernel parts: compiled into their callers, not separately.

numba generates machine code, and a Python wrapper, for every function that a kernel
calls, and uses none of it: it links intermediate code and optimises that again. Here
only functions called from Python become machine code.

    jit, kernel   Entry: called from Python; a kernel that calls it takes its part
    part, inlined Part: intermediate code, for kernels

If that fails and numba alone compiles the kernel, numba's internals have changed, and
numba alone compiles all kernels of the process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Mapping
from typing import Any

import numba
import numpy as np
from llvmlite import binding
from llvmlite import ir as llvm
from llvmlite.binding import Linkage
from llvmlite.binding.newpassmanagers import create_new_function_pass_manager
from numba.core import event, ir, sigutils, typed_passes, types
from numba.core.analysis import (
    compute_cfg_from_blocks,
    compute_use_defs,
    must_use_alloca,
)
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, Flags
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.errors import ForceLiteralArg, TypingError
from numba.core.lowering import Lower
from numba.core.registry import CPUDispatcher

from wfstdec.jit import members
from wfstdec.jit.cache import (
    ENTRY,
    PART,
    KernelCache,
    begin_compiling,
    count_ready,
    warn_of_numba,
)


class _Builder(llvm.IRBuilder):
    def extract_value(self, agg: Any, idx: Any, name: str = "") -> Any:
        """Return a member of an aggregate: the inserted value, if it is known."""
        path = tuple(idx) if isinstance(idx, (tuple, list)) else (idx,)
        while isinstance(agg, llvm.instructions.InsertValue):
            here = tuple(agg.indices)
            # Traced back to the value itself: LLVM would do so too, but only after
            # reading everything.
            if here == path[: len(here)]:
                agg, path = agg.value, path[len(here) :]
                if not path:
                    return agg
            elif path == here[: len(path)]:  # a part of it was inserted
                break
            else:
                agg = agg.aggregate
        return super().extract_value(agg, path, name)


class _Lower(Lower):
    """numba's, with fewer variables in memory."""

    def setup_function(self, fndesc: Any) -> None:
        super().setup_function(fndesc)
        self.builder.__class__ = _Builder

    def _find_singly_assigned_variable(self) -> None:
        super()._find_singly_assigned_variable()
        if not self.flags.nrt and not self.func_ir.func_id.is_generator:
            kept = must_use_alloca(self.blocks)
            self._singly_assigned_vars |= _set_before_use(self.blocks) - kept

    def lower_normal_function(self, fndesc: Any) -> None:
        super().lower_normal_function(fndesc)
        _drop_unused(self.function)


def _set_before_use(blocks: dict[int, Any]) -> set[str]:
    """Return variables with one assignment that dominates their uses."""
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
            # Otherwise a use could come before the assignment.
            if begin >= label or begin not in dominators[label]:
                found.discard(name)
    return found


def _drop_unused(function: Any) -> None:
    kinds = (llvm.instructions.InsertValue, llvm.instructions.ExtractValue)
    used: set[int] = set()
    waiting: list[Any] = []  # operands of instructions
    for block in function.blocks:
        for one in block.instructions:
            if isinstance(one, llvm.PhiInstr):
                waiting += [value for value, _ in one.incomings]
            elif not isinstance(one, kinds):
                waiting += one.operands
    while waiting:
        value = waiting.pop()
        if isinstance(value, kinds) and id(value) not in used:
            used.add(id(value))
            waiting += value.operands
    for block in function.blocks:
        block.instructions = [
            x for x in block.instructions if not isinstance(x, kinds) or id(x) in used
        ]


@register_pass(mutates_CFG=True, analysis_only=False)
class Lowering(typed_passes.BaseNativeLowering):
    """Lowering pass of numba's compiler with `_Lower`."""

    _name = "wfstdec_lowering"

    @property
    def lowering_class(self) -> type[Lower]:
        """Class that lowers a function."""
        return _Lower


def pipeline(state: Any) -> Any:
    """Return the passes of numba, with our lowering."""
    passes = members.passes_of(state)
    passes.passes = [
        (Lowering, text) if one is typed_passes.NativeLowering else (one, text)
        for one, text in passes.passes
    ]
    passes._finalized = False
    passes.finalize()
    return passes


_is_plain = False
"""Whether numba alone compiles."""


class _Library(JITCodeLibrary):
    """Intermediate code that is cleaned when added, and optimised once at the end."""

    def _optimize_functions(self, ll_module: Any) -> None:
        """Put variables into registers; numba would optimise everything here too."""
        ll_module.data_layout = self._codegen._data_layout
        builder = self._codegen._pass_builder()
        passes = create_new_function_pass_manager()
        passes.add_sroa_pass()
        passes.add_simplify_cfg_pass()
        for function in ll_module.functions:
            if not function.is_declaration:
                passes.run(function, builder)


class PartLibrary(_Library):
    """The intermediate code of a part, with that of all its callees."""

    @property
    def codegen(self) -> Any:
        """The code generator, without storage for constants."""
        return _NoEnvironment(self._codegen)

    def finalize(self) -> None:
        """Link the callees, without optimising or machine code."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            if hasattr(library, "_reload_init"):  # numba 0.63 and later
                self._reload_init.update(library._reload_init)
            module = library._get_module_for_linking()
            self._final_module.link_in(module, preserve=True)
        self._finalize_final_module()

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.external:
                function.linkage = (
                    Linkage.linkonce_odr
                )  # may be in several linked modules
        self._shared_module = self._final_module
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Return zero, numba's address for missing functions."""
        self._ensure_finalized()
        return 0

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """Pickle the name, the kind and the intermediate code."""
        self._ensure_finalized()
        return self.name, "part", self._get_module_for_linking().as_bitcode()

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> PartLibrary:
        name, _, bitcode = state
        library = cls(codegen, name)
        library._final_module = binding.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


class _NoEnvironment:
    """Code generator of parts, without storage for their constants."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Do nothing: the kernel that links the part has the constants."""


class EntryLibrary(_Library):
    """The machine code of a kernel that Python calls. Nothing links it."""

    def _optimize_final_module(self) -> None:
        """Run the optimiser once; numba does so twice to prune reference counts."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)

    def serialize_using_object_code(self) -> tuple[str, str, Any]:
        """Pickle the name, the kind, machine code and the names of its symbols."""
        self._ensure_finalized()
        module = self._final_module
        named = (*module.functions, *module.global_variables)
        names = [one.name for one in named if not one.is_declaration]
        return self.name, "entry", (self._get_compiled_object(), names)

    @classmethod
    def _unserialize(cls, codegen: Any, state: Any) -> EntryLibrary:
        name, _, (machine_code, names) = state
        library = cls(codegen, name)
        library.enable_object_caching()
        library._set_compiled_object(machine_code)
        library._finalize_final_module()
        codegen._engine._defined_symbols.update(names)
        return library


class _Flags(Flags):
    """Flags of a compilation; numba compares them for each call in a function."""

    _HASH = hash(Flags())  # numba's is the same for all flags

    def __hash__(self) -> int:
        return self._HASH

    def __eq__(self, other: object) -> bool:
        same = isinstance(other, Flags) and self._values == other._values
        return same or super().__eq__(other)


class _PartCompiler(Compiler):
    library: type[JITCodeLibrary] = PartLibrary

    def __init__(self, *arguments: Any) -> None:
        *others, flags, variables = arguments
        super().__init__(*others, _Flags(flags), variables)

    def compile_extra(self, function: Callable[..., Any]) -> Any:
        codegen = self.state.targetctx.codegen()
        self.state.library = self.library(codegen, function.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(function)

    def define_pipelines(self) -> list[Any]:
        return [pipeline(self.state)]


class _EntryCompiler(_PartCompiler):
    library = EntryLibrary


class _Kernel(CPUDispatcher):
    """Function that is compiled for each combination of argument types."""

    library: type[JITCodeLibrary]

    @functools.cached_property
    def plain(self) -> Any:
        names = {"nogil", "error_model", "_nrt"}
        own = {k: v for k, v in self.targetoptions.items() if k in names}
        return numba.njit(**own, pipeline_class=members.Compiler)(self.py_func)

    def compile(self, signature: Any) -> Any:
        """Load or compile for these types, once; return the entry point."""
        # As numba does, but without its timers, which take a twentieth of the time.
        with global_compiler_lock, self._compiling_counter:
            args, return_type = sigutils.normalize_signature(signature)
            # Another thread may have compiled it while this one waited for the lock.
            known = self.overloads.get(tuple(args))
            if known is not None:
                return known.entry_point
            result = self._load(signature)
            if result is None:
                with self._alone():
                    # Another process may have compiled it since the last check.
                    result = self._load(signature)
                    if result is None:
                        self._cache_misses[signature] += 1
                        result = self._compile(args, return_type)
                        self._cache.save_overload(signature, result)
            self.add_overload(result)
            count_ready()
            return result.entry_point

    def _load(self, signature: Any) -> Any:
        result = self._cache.load_overload(signature, self.targetctx)
        if result is not None:
            self._cache_hits[signature] += 1
            self.targetctx.insert_user_function(
                result.entry_point, result.fndesc, [result.library]
            )
        return result

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        """Wait for another process that compiles it; not for parts."""
        return contextlib.nullcontext()

    def _compile(self, args: Any, return_type: Any) -> Any:
        details = {"dispatcher": self, "args": args, "return_type": return_type}
        with event.trigger_event("numba:compile", data=details):
            try:
                return self._compiler.compile(args, return_type)
            except ForceLiteralArg as error:
                fold = self._compiler.fold_argument_types
                raise error.bind_fold_arguments(lambda a, k: fold(a, k)[1]) from None


class Part(_Kernel):
    """A function without a Python entry point."""

    library = PartLibrary

    def __call__(self, *arguments: Any) -> Any:
        """Run as Python."""
        with np.errstate(all="ignore"):  # as when compiled
            return self.py_func(*arguments)

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Compile for a kernel that calls it, one code for all literal arguments."""
        if _is_plain:
            return self.plain.get_call_template(args, kws)
        _, folded = self._compiler.fold_argument_types(args, kws)
        plain = tuple(map(types.unliteral, folded))  # type: ignore[attr-defined]
        if plain != tuple(folded) and tuple(folded) not in self.overloads:
            try:
                return super().get_call_template(plain, {})
            except TypingError:  # it depends on the literal value
                pass
        return super().get_call_template(args, kws)

    def get_overload(self, signature: Any) -> Any:
        """Return the overload for a kernel's call."""
        kernel: Any = self.plain if _is_plain else super()
        return kernel.get_overload(signature)

    def get_compile_result(self, signature: Any) -> Any:
        """Return the compilation result for a kernel's linking."""
        kernel: Any = self.plain if _is_plain else super()
        return kernel.get_compile_result(signature)


class Entry(_Kernel):
    """A function called from Python; kernels link its part."""

    library = EntryLibrary
    _part: Part | None = None

    def compile(self, signature: Any) -> Any:
        """Load or compile for these types, by numba alone if all else fails."""
        global _is_plain
        with global_compiler_lock:
            if _is_plain:
                return self.plain.compile(signature)
            try:
                return super().compile(signature)
            except Exception as error:
                _is_plain = True
                try:
                    result = self.plain.compile(signature)
                except Exception:  # an error in the kernel, or in its arguments
                    _is_plain = False
                    raise error from None
                warn_of_numba(error)
                return result

    @property
    def part(self) -> Part:
        """Code linked into calling kernels."""
        if self._part is None:
            options = {k: v for k, v in self.targetoptions.items() if k != "nopython"}
            self._part = compiled_by(Part, options)(self.py_func)
        return self._part

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """Return the template of calls to its part."""
        return self.part.get_call_template(args, kws)

    def get_overload(self, signature: Any) -> Any:
        """Return the part that a kernel calls."""
        return self.part.get_overload(signature)

    def get_compile_result(self, signature: Any) -> Any:
        """Return the part for these types, compiled if it is not yet."""
        return self.part.get_compile_result(signature)

    def _alone(self) -> contextlib.AbstractContextManager[None]:
        return self._cache.alone()

    def _compile(self, args: Any, return_type: Any) -> Any:
        target, codegen = self.targetctx, self.targetctx.codegen()
        begin_compiling()
        # Make parts of numba's own callees, and no entry point from C.
        before, codegen._library_class = codegen._library_class, PartLibrary
        target.create_cfunc_wrapper = lambda *arguments: None
        try:
            result = super()._compile(args, return_type)
        finally:
            codegen._library_class = before
            del target.create_cfunc_wrapper
        for environment in result._find_referenced_environments():
            result.codegen.set_env(environment.env_name, environment)
        return result


def compiled_by(kind: type[_Kernel], options: Mapping[str, Any]) -> Any:
    """Return a decorator that makes numba compile functions as parts or entries."""
    is_part = kind is Part
    own = {**options, "no_cfunc_wrapper": True, "no_cpython_wrapper": is_part}
    pipeline = _PartCompiler if is_part else _EntryCompiler

    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**own, pipeline_class=pipeline)(function)
        # numba has no option for the class of dispatchers.
        if isinstance(dispatcher, CPUDispatcher):  # not where the JIT is off
            dispatcher.__class__ = kind
            suffix = PART if is_part else ENTRY
            dispatcher._cache = KernelCache(function, kind.library, suffix)
        return dispatcher

    return decorate
