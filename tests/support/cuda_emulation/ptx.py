"""PTX that NVRTC made as C++: a second way to run kernels in the emulation.

    text = translate(ptx)                  # to follow `emulation.h` and `ptx.h`

An entry becomes a function of one thread, an instruction a statement, a register a
local variable; `#line` says where in the source it comes from. So it shows what the
emulation of the source does not: the parameter's layout, address spaces that the
compiler was promised, vector loads, what its optimiser did, that no sum is fused. It
does not show what ptxas and a GPU make of it.
"""

import re
from pathlib import PurePath

TYPES = {
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{"f32": "float", "f64": "double", "pred": "bool"},
}
SPECIAL = {
    **{"%tid.x": "threadIdx.x", "%ntid.x": "blockDim.x"},
    **{"%ctaid.x": "blockIdx.x", "%nctaid.x": "gridDim.x"},
    "%laneid": "(threadIdx.x % 32)",
    "%clock64": "uint64_t(clock64())",
    "%globaltimer": "uint64_t(nanoseconds())",
}
COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
COMPARED |= {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}
UNORDERED = {"equ": "!=", "neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}
"""True where a number is NaN: the negation of the opposite."""
OPERATORS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}
OPERATORS |= {"and": "&", "or": "|", "xor": "^"}
ATOMICS = {"add": "atomicAdd", "min": "atomicMin", "or": "atomicOr"}
ATOMICS |= {"exch": "atomicExch", "cas": "atomicCAS"}
SPACES = {"global": "GLOBAL", "shared": "SHARED"}
SHARED_ALIGNMENT = 16
_ENTRY = re.compile(
    r"^\.visible \.entry (\w+)\(\s*\.param \.align \d+ \.b8 (\w+)\[\d+\]\s*\)(.*?)\n\}",
    re.MULTILINE | re.DOTALL,
)
_SHARED = re.compile(
    r"(\.extern )?\.shared \.align (\d+) \.(\w+) (\w+)(?:\[(\d*)\])?;", re.ASCII
)
_REGISTERS = re.compile(r"\.reg \.(\w+)\s+%(\w+)<(\d+)>;")
_INSTRUCTION = re.compile(r"(?:@(!?)%(\w+)\s+)?([a-z][\w.:]*)\s*(.*)")
_LOC = re.compile(r"\.loc\s+(\d+) (\d+) ")
_FILE = re.compile(r'^\s*\.file\s+(\d+) "([^"]*)"', re.MULTILINE)
_LEFT_OUT = (".pragma", ".maxntid", ".minnctapersm", ".file")


class UntranslatedError(Exception):
    """PTX that is not known here, or that kernels may not have."""


def translate(ptx):
    """C++ of all entries of a module.

    Args:
        ptx: The module.

    Raises:
        UntranslatedError: An instruction that is not known, or a fused sum.
    """
    files = {int(number): name for number, name in _FILE.findall(ptx)}
    outside = _ENTRY.sub("", ptx)
    found = _ENTRY.finditer(ptx)
    return "\n".join(Entry(one, outside, files).text() for one in found)


def size_of(kind):
    """Bytes of a type."""
    return int(kind[1:]) // 8


def unsigned(kind):
    """The C++ type of a type's bits."""
    return "bool" if kind == "pred" else TYPES["b" + kind[1:]]


def split_operands(text):
    """Operands; those in braces and brackets whole."""
    return re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,]+", re.sub(r"\s", "", text))


class Entry:
    """An entry of a module.

    Args:
        found: A match of `_ENTRY`.
        outside: What stands in the module besides entries.
        files: Names of the sources, by number.
    """

    def __init__(self, found, outside, files):
        self.name, self.parameter, self._body = found.groups()
        self._files, self._registers, self._lines = files, [], []
        self._shared, self._static_bytes, self._place = {}, 0, ""
        for line in outside.splitlines():
            if declared := _SHARED.search(line):
                self._declare(declared)

    def text(self):
        """C++ of the entry, exported as the emulation's EMULATE does."""
        for line in self._body.splitlines():
            self._read(line.partition("//")[0].strip())
        body = "\n".join(self._registers + self._lines)
        name = self.name
        return f"""
static void of_ptx_{name}(const char* parameter) {{
{body}
}}
extern "C" void emulate_{name}(const void* argument, unsigned blocks, unsigned threads,
    unsigned shared_bytes, int os_threads, unsigned preempt, unsigned seed) {{
    const auto kernel = [](const void* p) {{ of_ptx_{name}((const char*)p); }};
    emulation::run({{kernel, argument, blocks, threads,
        shared_bytes + {self._static_bytes}u, preempt, seed}}, os_threads);
}}"""

    def _declare(self, found):
        """Lay out a variable of shared memory; one of any size stands behind all."""
        extern, alignment, kind, name, count = found.groups()
        if extern:
            self._shared[name] = None
            return
        first = -(-self._static_bytes // int(alignment)) * int(alignment)
        self._shared[name] = first
        end = first + int(count or 1) * size_of(kind)
        self._static_bytes = -(-end // SHARED_ALIGNMENT) * SHARED_ALIGNMENT

    def _read(self, line):
        """Translate a line of the body."""
        # A value that is thrown away has braces and a register of its own.
        line = re.sub(r"^\{ \.reg \.b64 %tmp;|; \}$", "", line).strip()
        if not line or line in "{}()" or line.startswith(_LEFT_OUT):
            return
        if found := _LOC.match(line + " "):
            name = PurePath(self._files.get(int(found[1]), "ptx")).name
            self._place = f'#line {found[2]} "{name}"\n'
        elif found := _REGISTERS.fullmatch(line):
            kind, name, count = found.groups()
            names = ", ".join(f"{name}{i} = 0" for i in range(int(count)))
            self._registers.append(f"{TYPES[kind]} {names};")
        elif found := _SHARED.fullmatch(line):
            self._declare(found)
        elif found := re.fullmatch(r"\$(\w+):", line):
            self._lines.append(f"{found[1]}:;")
        elif line.startswith("."):
            raise UntranslatedError(f"{self.name}: {line}")
        else:
            # Its own `#line`: the compiler counts on from one.
            self._lines.append(self._place + self._statement(line.rstrip(";")))

    def _statement(self, line):
        negated, guard, instruction, operands = _INSTRUCTION.fullmatch(line).groups()
        try:
            statement = Instruction(self, instruction, split_operands(operands)).text()
        except (AssertionError, LookupError, ValueError) as error:
            raise UntranslatedError(f"{self.name}: {line} ({error!r})") from None
        when = f"if ({negated}{guard}) " if guard else ""
        return f"{when}{{ {statement} }}"

    def value(self, word, kind=None):
        """C++ of an operand."""
        if word in SPECIAL:
            return SPECIAL[word]
        if word.startswith("%"):
            return word[1:]
        if word.startswith(("0f", "0d")):
            float_type, bits = ("float", "u") if word[1] == "f" else ("double", "ull")
            return f"ptx::bits<{float_type}>(0x{word[2:]}{bits})"
        if re.fullmatch(r"-?\d+|-?0x[0-9A-Fa-f]+", word):
            return f"({TYPES[kind] if kind else 'int64_t'})({word}ll)"
        if word == self.parameter:
            return "reinterpret_cast<uint64_t>(parameter)"
        offset = self._shared[word]
        if offset is None:
            offset = self._static_bytes
        return f"(ptx::FIRST_SHARED + {offset})"

    def address(self, operand):
        """C++ of an address in brackets."""
        base, _, offset = operand.strip("[]").partition("+")
        return f"uint64_t({self.value(base)}) + {offset or 0}"


class Instruction:
    """An instruction of an entry.

    Args:
        entry: The entry.
        name: Such as "ld.global.v4.u32".
        operands: Its operands, in PTX.
    """

    def __init__(self, entry, name, operands):
        self.operation, *self.suffixes = name.split(".")
        self.entry, self.operands = entry, operands
        self.kind = self.suffixes[-1] if self.suffixes else ""

    def text(self):
        """C++ that does the same."""
        if {"ftz", "sat", "approx"} & set(self.suffixes):
            raise ValueError("other numbers than every other backend")
        if self.operation in OPERATORS and self.operation not in ("mul", "div"):
            return self._operator()
        return getattr(self, f"_{self.operation}", self._unknown)()

    def _unknown(self):
        raise ValueError("not known")

    def _value(self, i, kind=None):
        return self.entry.value(self.operands[i], kind)

    def _becomes(self, value):
        return f"{self._value(0)} = {value};"

    # ------------------------------------------------------------------------ control
    def _ret(self):
        return "return;"

    def _bra(self):
        return f"goto {self.operands[0].lstrip('$')};"

    def _bar(self):
        if "warp" in self.suffixes:
            return f"ptx::wait_for_warp({self._value(0, 'u32')});"
        assert self.operands == ["0"], self.operands
        return "ptx::wait_for_block();"

    _barrier = _bar

    def _shfl(self):
        _, way, _ = self.suffixes
        target, _, within = self.operands[0].partition("|")
        lane, by = "int(threadIdx.x % 32)", f"int({self._value(2, 'u32')})"
        lanes = {"up": f"{lane} - {by}", "down": f"{lane} + {by}"}
        lanes |= {"bfly": f"{lane} ^ {by}", "idx": f"{by} & 31"}
        told = f"{within[1:]} = " if within else ""
        given = ", ".join(["word", self._value(1), lanes[way], self._value(4, "u32")])
        return f"uint32_t word; {told}ptx::shuffle({given}); {target[1:]} = word;"

    def _redux(self):
        combined = {"add": "a + b", "or": "a | b", "and": "a & b"}
        combined |= {name: f"std::{name}(a, b)" for name in ("min", "max")}
        return self._reduced(self._value(1), combined[self.suffixes[1]])

    def _vote(self):
        assert self.suffixes == ["sync", "ballot", "b32"], self.suffixes
        value = f"{self._value(1)} ? 1u << threadIdx.x % 32 : 0u"
        return self._reduced(value, "a | b")

    def _reduced(self, value, combined):
        combine = f"[](unsigned a, unsigned b) {{ return {combined}; }}"
        mask = self._value(2, "u32")
        return self._becomes(f"ptx::reduce({value}, {combine}, {mask})")

    # ------------------------------------------------------------------------- memory
    def _place(self, operand, size):
        space = next((SPACES[s] for s in self.suffixes if s in SPACES), "GENERIC")
        return f"ptx::place<ptx::{space}>({self.entry.address(operand)}, {size})"

    def _parts(self, operand):
        """The registers of a vector, and what all of them take."""
        count = next((int(s[1:]) for s in self.suffixes if s in ("v2", "v4")), 1)
        parts = operand.strip("{}").split(",")
        assert len(parts) == count, operand
        return parts, count * size_of(self.kind)

    def _ld(self):
        (parts, size), kind = self._parts(self.operands[0]), TYPES[self.kind]
        at, values = self._place(self.operands[1], size), map(self.entry.value, parts)
        if "relaxed" in self.suffixes:
            (value,) = values
            return f"{value} = peek(reinterpret_cast<{kind}*>({at}));"
        step = size_of(self.kind)
        reads = [
            f"{value} = ptx::load<{kind}>(at + {step * i});"
            for i, value in enumerate(values)
        ]
        return f"const char* at = {at}; {' '.join(reads)}"

    def _st(self):
        (parts, size), kind = self._parts(self.operands[1]), TYPES[self.kind]
        step, at = size_of(self.kind), self._place(self.operands[0], size)
        values = (self.entry.value(part, self.kind) for part in parts)
        writes = [
            f"ptx::store<{kind}>(at + {step * i}, {kind}({value}));"
            for i, value in enumerate(values)
        ]
        return f"char* at = {at}; {' '.join(writes)}"

    def _prefetch(self):
        place = self._place(self.operands[0], 1)
        return f"prefetch_l2({place});"

    def _atom(self):
        changed = self._changed(1)
        return f"{changed};" if self.operands[0] == "_" else self._becomes(changed)

    def _red(self):
        return f"{self._changed(0)};"

    def _changed(self, at):
        """The call that changes the word of operand `at`; it gives the old one."""
        how = self.suffixes[-2]
        kind = TYPES[self.kind] if how == "min" else unsigned(self.kind)
        place = self._place(self.operands[at], size_of(self.kind))
        given = (self.entry.value(one, self.kind) for one in self.operands[at + 1 :])
        values = [
            f"reinterpret_cast<{kind}*>({place})",
            *(f"{kind}({x})" for x in given),
        ]
        return f"{ATOMICS[how]}<{kind}>({', '.join(values)})"

    def _cvta(self):
        if "shared" not in self.suffixes:
            return self._becomes(self._value(1))
        to = "shared_of_generic" if "to" in self.suffixes else "generic_of_shared"
        return self._becomes(f"ptx::{to}({self._value(1)})")

    # ------------------------------------------------------------------------ numbers
    def _mov(self):
        target, source = self.operands
        kind, half = TYPES[self.kind], None
        if "{" in target + source:
            half = size_of(self.kind) * 4
        if target.startswith("{"):
            low, high = (word[1:] for word in target.strip("{}").split(","))
            part = f"uint{half}_t"
            value = f"const {kind} word = ptx::bits<{kind}>({self._value(1)});"
            return f"{value} {low} = {part}(word); {high} = {part}(word >> {half});"
        if source.startswith("{"):
            low, high = map(self.entry.value, source.strip("{}").split(","))
            return self._becomes(f"{kind}({low}) | {kind}({high}) << {half}")
        value, target = self._value(1, self.kind), self._value(0)
        if source.startswith("%") and source not in SPECIAL:
            return self._becomes(f"ptx::bits<decltype({target})>({value})")
        return self._becomes(f"ptx::bits<decltype({target})>({kind}({value}))")

    def _operator(self):
        sign = OPERATORS[self.operation]
        if self.kind.startswith("f"):
            assert self.suffixes[0] == "rn", self.suffixes
            return self._becomes(f"{self._value(1)} {sign} {self._value(2)}")
        kind = unsigned(self.kind)
        first, second = (f"{kind}({self._value(i, self.kind)})" for i in (1, 2))
        return self._becomes(f"{kind}({first} {sign} {second})")

    def _div(self):
        if self.suffixes == ["rn", "f32"]:
            return self._operator()
        return self._quotient("/")

    def _rem(self):
        return self._quotient("%")

    def _quotient(self, sign):
        (kind,) = self.suffixes
        first, second = (f"{TYPES[kind]}({self._value(i, kind)})" for i in (1, 2))
        return self._becomes(f"{first} {sign} {second}")

    def _mul(self):
        if self.kind.startswith("f") or self.suffixes[0] == "lo":
            return self._operator()
        kind, bits = TYPES[self.kind], int(self.kind[1:])
        wide = TYPES[f"{self.kind[0]}{2 * bits}"]
        first, second = (f"{wide}({kind}({self._value(i, self.kind)}))" for i in (1, 2))
        shift = f" >> {bits}" if self.suffixes[0] == "hi" else ""
        return self._becomes(f"({first} * {second}){shift}")

    def _mad(self):
        kind = unsigned(self.kind)
        a, b, c = (f"{kind}({self._value(i, self.kind)})" for i in (1, 2, 3))
        if self.suffixes[0] == "lo":
            return self._becomes(f"{kind}({a} * {b} + {c})")
        assert self.suffixes[0] == "wide", self.suffixes
        wide, kind = TYPES[f"{self.kind[0]}{2 * int(self.kind[1:])}"], TYPES[self.kind]
        a, b = (f"{wide}({kind}({self._value(i, self.kind)}))" for i in (1, 2))
        return self._becomes(f"{a} * {b} + {wide}({self._value(3)})")

    def _neg(self):
        if self.kind.startswith("f"):
            return self._becomes(f"-{self._value(1)}")
        kind = unsigned(self.kind)
        return self._becomes(f"{kind}(0 - {kind}({self._value(1)}))")

    def _abs(self):
        assert self.kind == "f32", self.suffixes
        return self._becomes(f"fabsf({self._value(1)})")

    def _not(self):
        if self.kind == "pred":
            return self._becomes(f"!{self._value(1)}")
        return self._becomes(f"{unsigned(self.kind)}(~{self._value(1, self.kind)})")

    def _shl(self):
        kind, by = unsigned(self.kind), self._value(2, "u32")
        return self._becomes(f"ptx::shl<{kind}>({self._value(1, self.kind)}, {by})")

    def _shr(self):
        kind, by = TYPES[self.kind], self._value(2, "u32")
        return self._becomes(f"ptx::shr<{kind}>({kind}({self._value(1)}), {by})")

    def _least_or_most(self):
        name = self.operation
        values = [self._value(i, self.kind) for i in (1, 2)]
        if self.kind == "f32":
            return self._becomes(f"f{name}f({', '.join(values)})")
        kind = TYPES[self.kind]
        first, second = (f"{kind}({value})" for value in values)
        return self._becomes(f"std::{name}<{kind}>({first}, {second})")

    _min = _max = _least_or_most

    def _setp(self):
        how, kind = self.suffixes[0], TYPES[self.kind]
        first, second = (self._value(i, self.kind) for i in (1, 2))
        if self.kind.startswith("f"):
            if how in UNORDERED:
                return self._becomes(f"!({first} {UNORDERED[how]} {second})")
        else:
            first, second = f"{kind}({first})", f"{kind}({second})"
        return self._becomes(f"{first} {COMPARED[how]} {second}")

    def _selp(self):
        first, second = (self._value(i, self.kind) for i in (1, 2))
        return self._becomes(f"{self._value(3)} ? {first} : {second}")

    def _bfi(self):
        values = ", ".join(self._value(i, self.kind) for i in (1, 2))
        where = ", ".join(self._value(i, "u32") for i in (3, 4))
        return self._becomes(f"ptx::bfi<{TYPES[self.kind]}>({values}, {where})")

    def _prmt(self):
        values = ", ".join(self._value(i, "u32") for i in (1, 2, 3))
        return self._becomes(f"ptx::prmt({values})")

    def _popc(self):
        count = {"b32": "popcount", "b64": "popcountll"}[self.kind]
        return self._becomes(f"__builtin_{count}({self._value(1)})")

    def _cvt(self):
        *rounding, to, given = self.suffixes
        value = self._value(1)
        if given == "f32" and to != "f64":
            if rounding == ["rpi"]:
                return self._becomes(f"ceilf({value})")
            assert rounding == ["rzi"], self.suffixes
            kept = unsigned(to)
            return self._becomes(f"{kept}(ptx::truncated<{TYPES[to]}>({value}))")
        return self._becomes(f"{TYPES[to]}({TYPES[given]}({value}))")
