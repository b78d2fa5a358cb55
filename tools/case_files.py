"""Folders of test cases, for the scripts that write them."""
import contextlib
import json
import os
import shutil


@contextlib.contextmanager
def replaced(out):
    """A folder to fill, which takes the place of `out` at the end; `out` stays as it was where that fails."""
    part = f"{out}.part"
    shutil.rmtree(part, ignore_errors=True)
    os.makedirs(part)
    yield part
    shutil.rmtree(out, ignore_errors=True)
    os.rename(part, out)


def write(path, message):
    with open(path, "wb") as f:
        f.write(message.SerializeToString())


def write_rule(folder, **rule):
    with open(f"{folder}/case.json", "w", encoding="utf-8") as f:
        json.dump(rule, f)


def write_data(folder, index, **messages):
    """input=[…], output=[…]: a data set's protobuf messages."""
    data = f"{folder}/test_data_set_{index}"
    os.makedirs(data)
    for kind, values in messages.items():
        for i, message in enumerate(values):
            write(f"{data}/{kind}_{i}.pb", message)
