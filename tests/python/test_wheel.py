# SPDX-License-Identifier: Apache-2.0
"""The wheel is built, installed into an empty virtual environment and used there, without a compiler, numpy or PyTorch.

    .venv/bin/python tests/python/test_wheel.py SOURCE-FOLDER

Exit: 0 all right, 77 scikit-build-core is not there.
"""
import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile

if importlib.util.find_spec("scikit_build_core") is None:
    sys.exit(print("test_wheel: skipped, no scikit-build-core (script/bootstrap python)") or 77)

USE = """
import sys, fp8
assert "numpy" not in sys.modules and "torch" not in sys.modules
assert fp8.inspect(sys.argv[1]).dialect == "none"
done = fp8.quantize_checkpoint(sys.argv[1], sys.argv[2], "ct-channel")
assert fp8.verify(sys.argv[2], against=sys.argv[1]).ok
print(fp8.__version__, len(done.tensors))
"""


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, text=True, stdout=subprocess.PIPE, **options).stdout


source = pathlib.Path(sys.argv[1]).resolve()
model = source / "tests/golden/checkpoints/llama_untied_bf16"
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    run(sys.executable, "-m", "pip", "wheel", source, "--no-build-isolation", "--no-deps", "--no-index", "-q", "-w", folder)
    wheel, = folder.glob("*.whl")
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl"), wheel.name
    run(sys.executable, "-m", "venv", folder / "empty")
    run(folder / "empty/bin/pip", "install", "-q", "--no-index", "--disable-pip-version-check", wheel)
    # Nothing of this tree, and no compiler.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("FP8", "PYTHON", "LD_"))}
    clean["PATH"] = str(folder / "empty/bin")
    print(run(folder / "empty/bin/python", "-c", USE, model, folder / "out", cwd=folder, env=clean), end="")
    assert "ct-channel" in run(folder / "empty/bin/fp8", "schemes", cwd=folder, env=clean)
    assert "good" in run(folder / "empty/bin/python", "-m", "fp8", "verify", folder / "out", cwd=folder, env=clean)
    needed = run("ldd", folder / "empty/lib" / f"python3.{sys.version_info.minor}" / "site-packages/fp8/lib/libfp8.so.0")
    outside = [line for line in needed.splitlines() if "=>" in line and str(folder) not in line]
    assert all(line.split()[0].startswith(("libc.", "libm.", "libpthread.", "libdl.")) for line in outside), outside
print("test_wheel: ok")
