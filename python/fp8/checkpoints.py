# SPDX-License-Identifier: Apache-2.0
"""Checkpoints: quantize, dequantize, convert, verify and inspect them, by the library and nothing else.

docs/formats.md has the schemes; the command line `python -m fp8` does the same.
"""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import json
import operator
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from . import _c, background, context as contexts
from ._c import PatternKind, Verb
from .arrays import dtype_of
from .errors import call

Path = str | os.PathLike[str]


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a conversion is. Bytes are those of the input; `tensor` was worked on last."""

    bytes_done: int
    bytes_total: int
    tensors_done: int
    tensors_total: int
    seconds: float
    tensor: str


@dataclasses.dataclass(frozen=True)
class PlannedTensor:
    """What happens to one tensor, and why."""

    name: str
    action: str
    scheme: str
    reason: str
    dtype_in: str
    dtype_out: str
    shape: tuple[int, ...]
    bytes_in: int
    bytes_out: int


@dataclasses.dataclass(frozen=True)
class Conversion:
    """A conversion that was done, or planned (dry_run). Bytes are those of tensors, scales included."""

    tensors: tuple[PlannedTensor, ...]
    bytes_in: int
    bytes_out: int
    disk_bytes: int
    peak_memory_bytes: int
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Finding:
    """A thing that verify found. tensor is "" if it is not about one."""

    is_error: bool
    rule: str
    tensor: str
    message: str


@dataclasses.dataclass(frozen=True)
class Verification:
    """What verify counted and found; `ok` if there is no error among the findings."""

    findings: tuple[Finding, ...]
    tensors: int
    quantized: int
    compared: int
    worst_sqnr_db: float
    median_sqnr_db: float

    @property
    def ok(self) -> bool:
        return not any(finding.is_error for finding in self.findings)


@dataclasses.dataclass(frozen=True)
class StoredTensor:
    """A tensor of a checkpoint; dtype as safetensors spells it, offset in `file`."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    bytes: int
    file: str
    offset: int


@dataclasses.dataclass(frozen=True)
class StoredWeight:
    """A weight that is stored as codes, its scale, and the scheme of a layer that computes with them; "" if there is none."""

    weight: StoredTensor
    scale: StoredTensor
    scheme: str


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds; dialect "none" if nothing is quantized, "unknown" if no dialect matches."""

    dialect: str
    tensors: tuple[StoredTensor, ...]
    warnings: tuple[str, ...]


def quantize_checkpoint(src: Path, dst: Path, scheme: str = "hf-block", *, numerics: str = "best",
                        **options: Any) -> Conversion:
    """Makes the FP8 checkpoint `dst` of `src`: a directory, an index or a .safetensors file, in bf16, fp16 or fp32.

    scheme: one of `fp8 schemes`. numerics: whose arithmetic. options, as of the command line:
    engine ("vllm", "transformers", "sglang", "tensorrt-llm"); keep, only: patterns of names; set: {pattern: scheme};
    keep_nan; max_memory (bytes, 0 = 256 MiB); max_shard (bytes); resume; force; shard=(i, n); report; activation_scales;
    dry_run; progress: called with a Progress some ten times a second; context.
    An exception in progress, KeyboardInterrupt too, stops it; what was written can be resumed.
    Errors: ValueError (arguments, formats, numbers), TypeError, NotImplementedError, OSError, MemoryError."""
    return _convert(Verb.QUANTIZE, src, dst, scheme=scheme, numerics=numerics, **options)


def dequantize_checkpoint(src: Path, dst: Path, dtype: Any = "bfloat16", **options: Any) -> Conversion:
    """Makes the high-precision checkpoint `dst` of an FP8 one of any dialect. Options and errors: as quantize_checkpoint."""
    return _convert(Verb.DEQUANTIZE, src, dst, dtype=dtype, **options)


def convert_checkpoint(src: Path, dst: Path, scheme: str, *, numerics: str = "best", **options: Any) -> Conversion:
    """Makes the FP8 checkpoint `dst` of another, of any dialect. Options and errors: as quantize_checkpoint."""
    return _convert(Verb.CONVERT, src, dst, scheme=scheme, numerics=numerics, **options)


def verify(path: Path, *, against: Path | None = None, engine: str | None = None, tp: int = 0,
           context: contexts.Context | None = None) -> Verification:
    """Checks a quantized checkpoint: container, index, scales, config; against its source or for an engine where asked.

    tp: tensor-parallel ranks to check for. What is wrong with it is a finding, not an exception. KeyboardInterrupt comes at
    once; the reading goes on in the background until it is done.
    Errors: ValueError, OSError, MemoryError."""
    desc = _c.VerifyDesc(path=_path(path), against=_path(against), engine=_text(engine),
                          tp=_number("tp", tp, 2**31 - 1))
    findings: list[Finding] = []
    summary = _c.VerifySummary()

    def collect(_user: Any, found: Any) -> None:
        f = found.contents
        findings.append(Finding(bool(f.is_error), f.rule.decode(), _name(f.tensor), _name(f.message)))

    owner, collector = context or contexts.default(), _c.FINDING_FN(collect)

    def work(_put: object) -> None:
        call("fp8_verify", owner.handle, ctypes.byref(desc), collector, None, ctypes.byref(summary))

    background.run(work)
    return Verification(tuple(findings), summary.tensors, summary.quantized, summary.compared, summary.worst_sqnr_db,
                        summary.median_sqnr_db)


def inspect(path: Path, *, context: contexts.Context | None = None) -> Checkpoint:
    """Reads the headers of a checkpoint, no data. Errors: ValueError (a rule of the format is broken), OSError, MemoryError."""
    with _opened(path, context) as ckpt:
        dialect = _c.lib.fp8_checkpoint_dialect(ckpt)
        if dialect is None:
            raise MemoryError("no memory to tell the checkpoint's dialect")
        tensors = tuple(_stored(ckpt, i) for i in range(_c.lib.fp8_checkpoint_count(ckpt)))
        return Checkpoint(dialect.decode(), tensors, tuple(_lines(_c.lib.fp8_checkpoint_warning, ckpt)))


def stored_weights(path: Path, *, context: contexts.Context | None = None) -> tuple[StoredWeight, ...]:
    """The weights of a checkpoint that are stored as codes with scales that fit. Errors: as inspect."""
    found: list[_c.WeightInfo] = []

    def collect(_user: Any, weight: Any) -> None:
        w = weight.contents
        found.append(_c.WeightInfo(w.weight, w.scale, w.grid, w.layer))

    with _opened(path, context) as ckpt:
        call("fp8_checkpoint_weights", ckpt, _c.WEIGHT_FN(collect), None)
        return tuple(StoredWeight(_stored(ckpt, w.weight), _stored(ckpt, w.scale), (w.layer or b"").decode()) for w in found)


@contextlib.contextmanager
def _opened(path: Path, context: contexts.Context | None) -> Iterator[ctypes.c_void_p]:
    ckpt, owner = ctypes.c_void_p(), context or contexts.default()
    call("fp8_checkpoint_open", owner.handle, _path(path), ctypes.byref(ckpt))
    try:
        yield ckpt
    finally:
        _c.lib.fp8_checkpoint_close(ckpt)


def scheme_info(name: str) -> _c.SchemeInfo:
    """The facts of a scheme of quantize_checkpoint. Errors: ValueError."""
    info, i = _c.SchemeInfo(), 0
    while _c.lib.fp8_scheme(i, ctypes.byref(info)) == 0:
        if info.name.decode() == name:
            return info
        i += 1
    raise ValueError(f"there is no scheme {name!r}")


def scheme_config(name: str, kept: Iterable[str]) -> Any:
    """What config.json's quantization_config says of a scheme with modules that stay in high precision.
    Errors: NotImplementedError (no such scheme, or none that config.json announces)."""
    texts = [text.encode() for text in kept]
    arguments = contexts.default().handle, name.encode(), (ctypes.c_char_p * len(texts))(*texts), len(texts)
    size = ctypes.c_uint64()
    call("fp8_scheme_config", *arguments, None, 0, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    call("fp8_scheme_config", *arguments, text, len(text), ctypes.byref(size))
    return json.loads(text.value)


def _stored(ckpt: ctypes.c_void_p, i: int) -> StoredTensor:
    info = _c.TensorInfo()
    _c.lib.fp8_checkpoint_tensor(ckpt, i, ctypes.byref(info))
    name = ctypes.string_at(info.name, info.name_bytes)
    return StoredTensor(_name(name), _dtype(info.dtype), tuple(info.shape[:info.ndim]), info.bytes,
                        os.fsdecode(info.file), info.offset)


def _convert(verb: Verb, src: Path, dst: Path, *, scheme: str | None = None, numerics: str | None = None, dtype: Any = None,
             engine: str | None = None, keep: Iterable[str] = (), only: Iterable[str] = (), set: Mapping[str, str] = {},
             keep_nan: bool = False, max_memory: int = 0, max_shard: int = 0, resume: bool = False, force: bool = False,
             shard: tuple[int, int] = (0, 0), report: Path | None = None, activation_scales: Path | None = None,
             dry_run: bool = False, progress: Callable[[Progress], None] | None = None,
             context: contexts.Context | None = None) -> Conversion:
    patterns = _patterns(keep, only, set)
    desc = _c.ConvertDesc(verb=verb, src=_path(src), dst=_path(dst), scheme=_text(scheme), engine=_text(engine),
                          numerics=_text(numerics), dtype=0 if dtype is None else dtype_of(dtype), keep_nan=keep_nan,
                          patterns=patterns, pattern_count=len(patterns),
                          max_memory_bytes=_number("max_memory", max_memory, 2**63 - 1),
                          max_shard_bytes=_number("max_shard", max_shard, 2**63 - 1), resume=resume, force=force,
                          part_index=_number("shard", shard[0], 2**31 - 1), part_count=_number("shard", shard[1], 2**31 - 1),
                          report=_path(report), activation_scales=_path(activation_scales))
    plan = _Plan(desc, context or contexts.default())
    if not dry_run:
        _run(plan, progress)
    return _conversion(plan.handle)


class _Plan:
    """A planned conversion, freed with the last that uses it."""

    def __init__(self, desc: _c.ConvertDesc, context: contexts.Context) -> None:
        self.handle = ctypes.c_void_p()
        call("fp8_convert_plan", context.handle, ctypes.byref(desc), ctypes.byref(self.handle))
        weakref.finalize(self, _free_plan, self.handle, context).atexit = False


def _free_plan(handle: ctypes.c_void_p, context: contexts.Context) -> None:
    """The context is an argument so that it is freed after the plan."""
    _c.lib.fp8_convert_free(handle)


def _run(plan: _Plan, progress: Callable[[Progress], None] | None) -> None:
    def work(put: Callable[[Progress], None]) -> None:
        def report(_user: Any, step: Any) -> None:
            p = step.contents
            put(Progress(p.bytes_done, p.bytes_total, p.tensors_done, p.tensors_total, p.seconds,
                         _name(ctypes.string_at(p.tensor, p.tensor_bytes))))

        call("fp8_convert_run", plan.handle, _c.PROGRESS_FN(report), None)

    background.run(work, progress, lambda: _c.lib.fp8_convert_stop(plan.handle))


def _conversion(conv: ctypes.c_void_p) -> Conversion:
    total, row, rows = _c.PlanSummary(), _c.PlanRow(), []
    _c.lib.fp8_convert_summary(conv, ctypes.byref(total))
    for i in range(_c.lib.fp8_convert_count(conv)):
        _c.lib.fp8_convert_row(conv, i, ctypes.byref(row))
        rows.append(PlannedTensor(_name(row.name), row.action.decode(), row.scheme.decode(), row.reason.decode(),
                                  _dtype(row.dtype_in), _dtype(row.dtype_out),
                                  tuple(row.shape[:row.ndim]), row.bytes_in, row.bytes_out))
    return Conversion(tuple(rows), total.bytes_in, total.bytes_out, total.disk_bytes, total.peak_memory_bytes,
                      tuple(_lines(_c.lib.fp8_convert_warning, conv)))


def _patterns(keep: Iterable[str], only: Iterable[str], schemes: Mapping[str, str]) -> ctypes.Array[_c.Pattern]:
    """In this order, of which the later win: only, set, keep."""
    for name, texts in (("keep", keep), ("only", only)):
        if isinstance(texts, (str, bytes)):
            raise TypeError(f"{name} must be a list of patterns, not {texts!r}")
    made = [_c.Pattern(PatternKind.PATTERN_ONLY, _text(text), None) for text in only]
    made += [_c.Pattern(PatternKind.PATTERN_SET, _text(text), _text(scheme)) for text, scheme in dict(schemes).items()]
    made += [_c.Pattern(PatternKind.PATTERN_KEEP, _text(text), None) for text in keep]
    return (_c.Pattern * len(made))(*made)


def _lines(function: Callable[..., bytes | None], handle: ctypes.c_void_p) -> Iterator[str]:
    i = 0
    while (line := function(handle, i)) is not None:
        yield _name(line)
        i += 1


def _dtype(dtype: int) -> str:
    """As safetensors spells it; "" for none, which is what a dropped tensor becomes."""
    return (_c.lib.fp8_dtype_name(dtype) or b"").decode()


def _name(text: bytes) -> str:
    """Names of tensors are UTF-8, paths need not be."""
    return text.decode(errors="surrogateescape")


def _path(path: Path | None) -> bytes | None:
    return None if path is None else _without_nul(os.fsencode(path))


def _text(text: str | None) -> bytes | None:
    if text is not None and not isinstance(text, str):
        raise TypeError(f"expected text, got {text!r}")
    return None if text is None else _without_nul(text.encode())


def _without_nul(text: bytes) -> bytes:
    """C would read it up to there."""
    if b"\0" in text:
        raise ValueError(f"{text!r} holds a NUL")
    return text


def _number(name: str, value: int, most: int) -> int:
    """ctypes would take it modulo its range."""
    if not 0 <= operator.index(value) <= most:
        raise ValueError(f"{name}={value} is not 0..{most}")
    return value
