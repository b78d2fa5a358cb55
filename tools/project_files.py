"""The project's C++ files and what they include, for the checks."""
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)


def tracked(*patterns):
    """Paths of tracked files, relative to the root."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", *patterns], capture_output=True, text=True, check=True)
    return [path for path in listed.stdout.split("\0") if path and os.path.exists(f"{ROOT}/{path}")]


def includes(path):
    """(line number, name as written) of each include in `path`."""
    with open(f"{ROOT}/{path}", encoding="utf-8") as f:
        text = f.read()
    return [(text.count("\n", 0, match.start()) + 1, match[2]) for match in INCLUDE.finditer(text)]


def resolve(path, name):
    """The project's file that `path` means by `name`, relative to the root; None where it is someone else's."""
    for candidate in (name, f"include/{name}", os.path.join(os.path.dirname(path), name)):
        candidate = os.path.normpath(candidate)
        if not candidate.startswith("..") and os.path.isfile(f"{ROOT}/{candidate}"):
            return candidate
    return None
