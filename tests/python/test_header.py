# SPDX-License-Identifier: Apache-2.0
"""python/fp8/_c.py says what include/fp8.h says: names, sizes and offsets of structures, values of enumerators, functions and
how many arguments they take. A C compiler is asked for the numbers.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python python3 tests/python/test_header.py
"""
import ctypes
import pathlib
import re
import subprocess
import tempfile
import unittest

from fp8 import _c

HEADER = pathlib.Path(__file__).resolve().parents[2] / "include" / "fp8.h"
TEXT = re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.S)


def compiled(expressions):
    """The values of C expressions, as integers."""
    with tempfile.TemporaryDirectory() as folder:
        source, program = pathlib.Path(folder, "ask.c"), pathlib.Path(folder, "ask")
        lines = "".join(f'printf("%lld\\n", (long long)({e}));\n' for e in expressions)
        source.write_text(f'#include <fp8.h>\n#include <stdio.h>\nint main(void) {{\n{lines}return 0; }}\n')
        subprocess.run(["cc", "-I", HEADER.parent, "-DFP8_STATIC", source, "-o", program], check=True)
        return [int(line) for line in subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()]


def c_structs():
    """{name: [field, ..]} of the header, in order."""
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", TEXT, flags=re.S):
        body = re.sub(r"\(\*(\w+)\)\([^;]*\)", r"\1", body)  # a pointer to a function is a field
        body = re.sub(r"\[[^]]*\]", "", body)
        found[name] = [field.split()[-1].strip("*") for line in body.split(";") if line.strip() for field in line.split(",")]
    return found


def fields_bytes(struct, start=0):
    """The offsets of all bytes that belong to a field."""
    for field, kind in struct._fields_:
        at, size = start + getattr(struct, field).offset, getattr(struct, field).size
        yield from fields_bytes(kind, at) if issubclass(kind, ctypes.Structure) else range(at, at + size)


class Header(unittest.TestCase):
    def test_every_structure_is_bound_with_its_fields_in_order(self):
        found = c_structs()
        self.assertEqual(sorted(found), sorted(_c.STRUCTS))
        for name, fields in found.items():
            self.assertEqual(fields, [field for field, _ in _c.STRUCTS[name]._fields_], name)

    def test_sizes_and_offsets_are_the_compilers(self):
        asked, mine = [], []
        for name, struct in _c.STRUCTS.items():
            asked.append(f"sizeof({name})")
            mine.append(ctypes.sizeof(struct))
            for field, _ in struct._fields_:
                asked += [f"offsetof({name}, {field})", f"sizeof((({name} *)0)->{field})"]
                mine += [getattr(struct, field).offset, getattr(struct, field).size]
        for what, theirs, ours in zip(asked, compiled(asked), mine, strict=True):
            self.assertEqual(theirs, ours, what)

    def test_enumerators_have_the_headers_values(self):
        names = {prefix + member.name: member.value for prefix, enums in _c.ENUMS.items() for e in enums for member in e}
        names["FP8_BATCH_INVARIANT"] = _c.BATCH_INVARIANT
        declared = [word for body in re.findall(r"enum(?: \w+)? \{(.*?)\}", TEXT, flags=re.S)
                    for word in re.findall(r"\b(FP8_\w+)\s*=", body)]
        self.assertEqual(sorted(declared), sorted(names))
        self.assertEqual(compiled(names), list(names.values()))
        self.assertEqual(compiled(["FP8_MAX_DIMS"]), [_c.MAX_DIMS])

    def test_every_function_is_bound_with_as_many_arguments(self):
        declared = {}
        for name, arguments in re.findall(r"FP8_API [^;]*?\b(fp8_\w+)\(([^;]*)\);", TEXT, flags=re.S):
            declared[name] = 0 if arguments.strip() == "void" else arguments.count(",") + 1
        self.assertEqual(declared, {name: len(arguments) for name, (_, arguments) in _c.PROTOTYPES.items()})

    def test_defaults_are_those_of_the_init_macros(self):
        for name, macro in (("fp8_quantize_desc", "FP8_QUANTIZE_DESC_INIT"), ("fp8_linear_desc", "FP8_LINEAR_DESC_INIT"),
                            ("fp8_context_desc", "FP8_CONTEXT_DESC_INIT"), ("fp8_convert_desc", "FP8_CONVERT_DESC_INIT"),
                            ("fp8_verify_desc", "FP8_VERIFY_DESC_INIT"), ("fp8_fused_desc", "FP8_FUSED_DESC_INIT"),
                            ("fp8_dispatch_desc", "FP8_DISPATCH_DESC_INIT")):
            used = list(fields_bytes(_c.STRUCTS[name]))  # padding is anything
            theirs = compiled([f"((unsigned char *)&({name}){macro})[{byte}]" for byte in used])
            ours = bytes(_c.STRUCTS[name]())
            differing = [byte for byte, value in zip(used, theirs) if value != ours[byte]]
            self.assertEqual(differing, [], f"{name}: bytes that differ from {macro}")


if __name__ == "__main__":
    unittest.main()
