"""GGUF, version 3: as much of it as one small model needs.

Source: the GGUF specification of ggml (magic, version, counts, key-values, tensor
infos, padding, tensor data; all little-endian).
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_ALIGNMENT = 32
_U32, _I32, _F32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9
_TENSOR_TYPE = {np.dtype("<f4"): 0, np.dtype("<f2"): 1}

Value = str | bool | int | float | Sequence[str] | Sequence[int]
Array = npt.NDArray[np.float16] | npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A tensor to come: rows are its last axis, as numpy has it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[np.float16] | np.dtype[np.float32]

    @property
    def n_bytes(self) -> int:
        """Bytes of its data."""
        return int(np.prod(self.shape)) * self.dtype.itemsize


def header(values: dict[str, Value], tensors: Sequence[TensorInfo]) -> bytes:
    """Return everything before the tensor data, padded.

    A list of integers is written as int32, an integer as uint32.
    """
    parts = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(values))]
    for key, value in values.items():
        parts += [_text(key), _value(value)]
    offset = 0
    for tensor in tensors:
        dims = tensor.shape[::-1]
        kind = _TENSOR_TYPE[tensor.dtype]
        parts += [_text(tensor.name), struct.pack("<I", len(dims))]
        parts.append(struct.pack(f"<{len(dims)}QIQ", *dims, kind, offset))
        offset += _padded(tensor.n_bytes)
    data = b"".join(parts)
    return data + bytes(_padded(len(data)) - len(data))


def body(arrays: Iterable[Array]) -> Iterator[bytes]:
    """Yield the data of each tensor, padded, in the order of the header."""
    for array in arrays:
        data = array.tobytes()
        yield data + bytes(_padded(len(data)) - len(data))


def _padded(n_bytes: int) -> int:
    return -(-n_bytes // _ALIGNMENT) * _ALIGNMENT


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", _STRING) + _text(value)
    if isinstance(value, bool):
        return struct.pack("<I?", _BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", _U32, value)
    if isinstance(value, float):
        return struct.pack("<If", _F32, value)
    if all(isinstance(v, str) for v in value):
        items = b"".join(_text(str(v)) for v in value)
        return struct.pack("<IIQ", _ARRAY, _STRING, len(value)) + items
    numbers = [int(v) for v in value]
    head = struct.pack("<IIQ", _ARRAY, _I32, len(numbers))
    return head + struct.pack(f"<{len(numbers)}i", *numbers)
