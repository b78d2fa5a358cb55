#!/usr/bin/env python3
"""Runs clang-tidy over all sources as BUILD/compile_commands.json compiles them.

    run_clang_tidy.py BUILD [--jobs N] [PATH...]

A source is checked again only when it, a project file it includes, its flags or .clang-tidy have changed since it was clean;
what was clean is remembered per user, so that every checkout on a machine profits, as with ccache.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time

from project_files import ROOT, includes, resolve

TIDY = "clang-tidy-22"  # reads system headers but does not check them, which saves over a third of the time
FOLDERS = ("ops/", "frontends/", "passes/", "jit/", "runtime/", "cli/", "examples/", "python/", "tests/", "bench/")
HEADERS = f"^{ROOT}/(include/|{'|'.join(FOLDERS)})"


def flags_of(entry):
    """What clang needs of a compile command: language, paths and definitions; no warnings, code generation or precompiled
    headers. Assertions are on, so that they are checked and tell what holds."""
    words, kept = shlex.split(entry["command"]), []
    for i, word in enumerate(words):
        if word == "-DNDEBUG":
            continue
        if word.startswith(("-I", "-D", "-std=")) or word in ("-fno-exceptions", "-fno-rtti"):
            kept.append(word)
        elif word == "-isystem":
            kept += [word, words[i + 1]]
    return kept


def closure(path, seen):
    """`path` and all project files it includes."""
    if path not in seen:
        seen.add(path)
        for _, name in includes(path):
            if target := resolve(path, name):
                closure(target, seen)
    return seen


def key(path, flags):
    digest = hashlib.sha256("\0".join([TIDY, *flags]).replace(ROOT, ".").encode())
    for name in [".clang-tidy", *sorted(closure(path, set()))]:
        with open(f"{ROOT}/{name}", "rb") as f:
            digest.update(name.encode() + b"\0" + hashlib.sha256(f.read()).digest())
    return digest.hexdigest()


def check(path, flags):
    """Seconds taken, and what clang-tidy found ('' when clean)."""
    start = time.monotonic()
    done = subprocess.run([TIDY, "--quiet", f"--header-filter={HEADERS}", path, "--", *flags],
                          cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    found = done.stdout if done.stdout.strip() else done.stderr
    return time.monotonic() - start, found if done.returncode else ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("build")
    parser.add_argument("paths", nargs="*", help="only sources that start so")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    args = parser.parse_intermixed_args()
    with open(f"{args.build}/compile_commands.json", encoding="utf-8") as f:
        commands = {os.path.relpath(entry["file"], ROOT): flags_of(entry) for entry in json.load(f)}
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "lathe", "tidy")
    os.makedirs(cache, exist_ok=True)
    sources = sorted(path for path in commands if path.startswith(tuple(args.paths) or FOLDERS))
    stale = [(path, stamp) for path in sources if not os.path.exists(stamp := f"{cache}/{key(path, commands[path])}")]

    failed, times = 0, []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        jobs = {pool.submit(check, path, commands[path]): (path, stamp) for path, stamp in stale}
        for i, job in enumerate(concurrent.futures.as_completed(jobs), 1):
            path, stamp = jobs[job]
            seconds, found = job.result()
            times.append((seconds, path))
            print(f"  [{i}/{len(stale)}] {path} ({seconds:.1f} s)", flush=True)
            if found:
                failed += 1
                print(found, file=sys.stderr, flush=True)
            else:
                open(stamp, "w", encoding="utf-8").close()
    print(f"  {len(sources)} sources, {len(stale)} checked, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
