"""Lathe beside ONNX Runtime, on every model of a folder.

Each engine runs each model in a process of its own, with pre-bound buffers, at its defaults; rounds of the engines
alternate, and an engine is stopped (SIGSTOP) while another's round runs, so that no idle thread disturbs it. From models
that ONNX Runtime runs in under 50 us its Python call is taken off (an Identity network, run in turns with them). Outputs are
compared. A ratio is the peer's median over Lathe's, of the same round: above 1, Lathe is faster; the median of the
rounds is given, and the lowest and highest.
"""
import argparse
import json
import math
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


class Peer:
    """An engine with one model loaded, in a process of its own; stopped but while it is asked."""

    def __init__(self, command, model, inputs, threads):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [*command, str(model), str(inputs), str(threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True,
        )
        self.started = self.read()
        self.process.send_signal(signal.SIGSTOP)

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.log.seek(0)
            raise RuntimeError(self.log.read().decode(errors="replace").strip()[-500:] or "ended without a word")
        return json.loads(line)

    def ask(self, command):
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        answer = self.read()
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def close(self):
        self.process.kill()
        self.process.wait()


def difference(ours, theirs):
    """The largest difference of two archives of outputs, relative to each output's largest value; infinite where types differ."""
    worst = 0.0
    with np.load(ours) as a, np.load(theirs) as b:
        for name in b.files:
            if name not in a.files or a[name].shape != b[name].shape:
                return math.inf
            if b[name].dtype.kind not in "fiub" or b[name].size == 0:
                continue
            x, y = a[name].astype(np.float64), b[name].astype(np.float64)
            finite = np.isfinite(y)
            if not np.array_equal(x[~finite], y[~finite], equal_nan=True) or not np.isfinite(x[finite]).all():
                return math.inf
            if not finite.any():
                continue
            x, y = x[finite], y[finite]
            worst = max(worst, float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30)))
    return worst


def measure(model, inputs, commands, arguments):
    peers = {}
    try:
        for name, command in commands.items():
            peers[name] = Peer(command, model, inputs, arguments.threads)
        for peer in peers.values():  # caches, clocks, branch predictors
            peer.ask(f"run {arguments.seconds / 4}")
        rounds = []
        for index in range(arguments.rounds):
            order = list(peers) if index % 2 == 0 else list(reversed(peers))
            rounds.append({name: peers[name].ask(f"run {arguments.seconds}") for name in order})
        with tempfile.TemporaryDirectory() as folder:
            for name, peer in peers.items():
                peer.ask(f"outputs {folder}/{name}.npz")
            worst = difference(f"{folder}/lathe.npz", f"{folder}/onnxruntime.npz")
    finally:
        for peer in peers.values():
            peer.close()
    return {
        "model": model.stem,
        "threads": arguments.threads,
        "difference": worst,
        "started": {name: peer.started for name, peer in peers.items()},
        "rounds": rounds,
        **summary(rounds),
    }


def summary(rounds):
    calls = [r["onnxruntime"]["call_ms"] for r in rounds]
    medians = {name: [statistics.median(r[name]["times_ms"]) for r in rounds] for name in rounds[0]}
    medians["onnxruntime"] = [m - call for m, call in zip(medians["onnxruntime"], calls)]
    ratios = sorted(theirs / ours for ours, theirs in zip(medians["lathe"], medians["onnxruntime"]))
    if ratios[len(ratios) // 2] <= 0:  # the call costs as much as the network: there is nothing left to compare
        raise RuntimeError(f"ONNX Runtime's call ({statistics.median(calls) * 1e3:.1f} us) hides what the network takes")
    return {
        "median_ms": {name: statistics.median(values) for name, values in medians.items()},
        "call_taken_off_ms": statistics.median(calls),
        "ratio": statistics.median(ratios),
        "ratio_low": ratios[0],
        "ratio_high": ratios[-1],
    }


def cpu_name():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


HEADER = f"{'model':16}{'lathe ms':>11}{'ort ms':>11}{'ratio':>8}{'of the rounds':>16}{'load+first ms':>18}{'difference':>12}"


def row(r):
    start = {name: s["load_ms"] + s["first_ms"] for name, s in r["started"].items()}
    return (
        f"{r['model']:16}{r['median_ms']['lathe']:11.4f}{r['median_ms']['onnxruntime']:11.4f}{r['ratio']:8.2f}"
        f"{r['ratio_low']:9.2f}..{r['ratio_high']:.2f}{start['lathe']:10.0f} /{start['onnxruntime']:6.0f}{r['difference']:12.1e}"
        + ("  (call taken off)" if r["call_taken_off_ms"] else "")
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="model files (default: all of .models)")
    parser.add_argument("--inputs", type=Path, default=ROOT / "tests/data/models", help="folder of MODEL.in.npz")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.4, help="of one round of one engine")
    parser.add_argument("--json", type=Path, help="write all samples here")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    arguments = parser.parse_args()

    commands = {
        "lathe": [arguments.build / "bin/lathe_peer"],
        "onnxruntime": [sys.executable, ROOT / "bench/peers/onnxruntime_peer.py"],
    }
    print(f"{cpu_name()}, {arguments.threads} threads, {arguments.rounds} rounds of {arguments.seconds} s\n\n{HEADER}")
    results, failed = [], 0
    for model in arguments.models or sorted((ROOT / ".models").glob("*.onnx")):
        try:
            results.append(measure(model, arguments.inputs / f"{model.stem}.in.npz", commands, arguments))
            print(row(results[-1]), flush=True)
        except (RuntimeError, OSError) as error:
            print(f"{model.stem:16}failed: {error}", flush=True)
            failed = 1
    if results:
        mean = math.exp(statistics.fmean(math.log(r["ratio"]) for r in results))
        worst = min(results, key=lambda r: r["ratio"])
        print(f"\ngeometric mean of the ratios {mean:.2f}; the lowest {worst['ratio']:.2f} ({worst['model']})")
    if arguments.json:
        report = {"cpu": cpu_name(), "cores": os.cpu_count(), "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "results": results}
        part = arguments.json.with_name(arguments.json.name + ".part")
        part.write_text(json.dumps(report))
        part.replace(arguments.json)
    return failed


sys.exit(main())
