"""liblathe.so exports lathe::* and lathe_* and nothing else, and keeps the two symbols that gdb looks for."""
import re
import subprocess
import sys

library = f"{sys.argv[1]}/lib/liblathe.so"
ALLOWED = re.compile(r"lathe_|_ZN[KRO]*5lathe|_ZT[ISVT]N5lathe|_ZT[hv][n0-9_]+N5lathe|_ZGVN5lathe")


def symbols(*flags):
    listed = subprocess.run(["nm", *flags, library], capture_output=True, text=True, check=True)
    return [line.split()[-1] for line in listed.stdout.splitlines() if line]


exported = symbols("--dynamic", "--defined-only")
foreign = [name for name in exported if not ALLOWED.match(name)]
assert not foreign, f"{len(foreign)} symbols should not be exported, among them {foreign[:5]}"
for wanted in ("_ZN5lathe10build_infoEv", "_ZN5lathe6Tensor"):
    assert any(name.startswith(wanted) for name in exported), f"{wanted} is not exported"
print(f"{len(exported)} symbols exported")

local = symbols("--defined-only")
for wanted in ("__jit_debug_register_code", "__jit_debug_descriptor"):
    assert wanted in local, f"{wanted} did not survive stripping"
