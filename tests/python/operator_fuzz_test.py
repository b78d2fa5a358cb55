"""A few random uses of every operator give what ONNX's reference evaluator gives, or an error that names the node."""
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "tools"))
import fuzz_operators  # noqa: E402

COUNT = 1025  # five of each

with tempfile.TemporaryDirectory() as folder:
    counts = fuzz_operators.fuzz(f"{sys.argv[1]}/bin/lathe", COUNT, 1, folder)
total = fuzz_operators.summary(counts, table=False)
assert total[fuzz_operators.AGREES] > COUNT * 0.7
assert total[fuzz_operators.DIFFERS] + total[fuzz_operators.UNCLEAR] + total[fuzz_operators.CRASHED] == 0
