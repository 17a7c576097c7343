# SPDX-License-Identifier: Apache-2.0
"""`python -m fp8` and the script `fp8`: the command line, which is a program of its own in bin/."""
from __future__ import annotations

import os
import pathlib
import sys


def main() -> None:
    program = os.environ.get("FP8_PROGRAM") or str(pathlib.Path(__file__).parent / "bin" / "fp8")
    try:
        os.execv(program, ["fp8", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"fp8: cannot run {program}: {error.strerror}")


if __name__ == "__main__":
    main()
