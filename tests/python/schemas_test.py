"""The operators' table beside ONNX's schemas: opsets are theirs, and dtypes at least, up to what is listed here with its reason."""
import json
import re
import subprocess
import sys

import onnx

NEWEST = 28
NAMES = {name: short for name, short in (
    pair.split(":") for pair in (
        "float:f32 double:f64 float16:f16 bfloat16:bf16 int8:i8 int16:i16 int32:i32 int64:i64 uint8:u8 uint16:u16 uint32:u32 "
        "uint64:u64 bool:bool string:string complex64:c64 complex128:c128 float8e4m3fn:f8e4m3fn "
        "float8e4m3fnuz:f8e4m3fnuz float8e5m2:f8e5m2 float8e5m2fnuz:f8e5m2fnuz uint4:u4 int4:i4 float4e2m1:f4e2m1 "
        "float8e8m0:f8e8m0 uint2:u2 int2:i2").split())}

# What Lathe does not take although a schema has it: (operator, input) -> dtypes.
REFUSED = {
    ("Dropout", 0): "float8 is for storing",
    ("Dropout", 1): "float8 is for storing",
    ("Trilu", 0): "text and complex numbers have no zero here",
    ("Col2Im", 0): "text and complex numbers are not summed",
    ("GridSample", 0): "text and complex numbers are not weighed",
    ("Scan", 0): "slices of packed elements begin within bytes",
}


def dtypes_of(schema, kind):
    allowed = [kind]
    for constraint in schema.type_constraints:
        if constraint.type_param_str == kind:
            allowed = constraint.allowed_type_strs
    found = (re.fullmatch(r"tensor\((\w+)\)", text) for text in allowed)
    return {NAMES[match[1]] for match in found if match and match[1] in NAMES}


def taken(operator, i):
    for rule in operator["takes"]:
        inputs = rule["inputs"]
        if not inputs or i in inputs or (rule["and_behind"] and i > inputs[-1]):
            return set(rule["dtypes"])
    return None


schemas = {}
for schema in onnx.defs.get_all_schemas_with_history():
    if schema.since_version <= NEWEST:
        schemas.setdefault((schema.domain, schema.name), []).append(schema)

lathe = f"{sys.argv[1]}/bin/lathe"
operators = json.loads(subprocess.run([lathe, "ops", "--json"], capture_output=True, text=True, check=True).stdout)
wrong, unused, compared = [], set(REFUSED), 0
for operator in operators:
    versions = sorted(schemas.get((operator["domain"], operator["name"]), []), key=lambda s: s.since_version)
    if not versions:
        continue
    compared += 1
    newest = versions[-1]
    opsets = (versions[0].since_version, newest.since_version)
    if (operator["first"], operator["since"]) != opsets:
        wrong.append(f"{operator['name']}: opsets {operator['first']} to {operator['since']}, the schemas say {opsets}")
    for i, schema_input in enumerate(newest.inputs):
        here, there = taken(operator, i), dtypes_of(newest, schema_input.type_str)
        if not there or (here is None and "tensor(" not in str(schema_input.types)):
            continue
        if here is None:
            wrong.append(f"{operator['name']}: input {i} has no rule, the schema says {sorted(there)}")
        elif missing := there - here:
            if (operator["name"], i) in REFUSED:
                unused.discard((operator["name"], i))
            else:
                wrong.append(f"{operator['name']}: input {i} lacks {sorted(missing)}")
wrong += [f"{name}: input {i} takes all that the schema has: take it off the list" for name, i in unused]
print(f"{compared} operators compared with their schemas")
assert compared > 200, compared
assert not wrong, "\n".join(wrong)
