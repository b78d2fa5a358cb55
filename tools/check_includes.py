#!/usr/bin/env python3
"""Checks that each folder includes only what lies before it, and that LLVM and oneDNN stay where they belong."""
import sys

from project_files import includes, resolve, tracked

# Folder: the folders it may include besides itself. What is not listed (tests, bench) may include anything.
MAY_INCLUDE = {
    "include": set(),
    "ops": {"include"},
    "frontends": {"include", "ops"},
    "passes": {"include", "ops"},
    "jit": {"include", "ops"},
    "runtime": {"include", "ops", "frontends", "passes", "jit"},
    "cli": {"include"},
    "examples": {"include"},
    "python": {"include"},
}
# Prefix of a foreign header: the folders that may include it.
CONFINED = {
    "llvm": ("jit/", "tests/", "bench/"),
    "dnnl": ("runtime/backends/onednn/", "tests/", "bench/"),
    "oneapi/": ("runtime/backends/onednn/", "tests/", "bench/"),
}


def fault(path, name):
    """Why `path` may not include `name`, or None."""
    folder = path.split("/")[0]
    target = resolve(path, name)
    if target:
        other = target.split("/")[0]
        if folder in MAY_INCLUDE and other != folder and other not in MAY_INCLUDE[folder]:
            return f"{folder}/ may not include {other}/"
        return None
    if folder == "include" and ("/" in name or "." in name):
        return "public headers include the standard library only"
    for prefix, homes in CONFINED.items():
        if name.startswith(prefix) and not path.startswith(homes):
            return f"{prefix}* may be included only in {homes[0]}"
    return None


def main():
    files = tracked("*.h", "*.cpp")
    found = [(path, line, name, why) for path in files for line, name in includes(path) if (why := fault(path, name))]
    for path, line, name, why in found:
        print(f"{path}:{line}: {name}: {why}", file=sys.stderr)
    print(f"  {len(files)} files, {len(found)} wrong includes")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
