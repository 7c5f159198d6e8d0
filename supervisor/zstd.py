"""Zstandard as a stream, in bounded memory whatever the input."""

import sys
import time
from collections.abc import Iterable, Iterator

from runtimes.tar_stream import PIECE, ArchiveUnreadable

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

#: log2 of the most memory that a frame may ask of its reader: 8 MiB. Source: RFC 8878, 3.1.1.1.2
_WINDOW_LOG = 23

#: bytes that are given to the decompressor at once: a frame may be as short as 9 bytes, and each copies what is left
_STEP = 16 * 1024

#: seconds after which compressed bytes come, however few they are
_SHORT = 1.0

_COMPRESSION: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
_DECOMPRESSION: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}


def compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """One frame, with a checksum."""
    compressor, given_at = zstd.ZstdCompressor(options=_COMPRESSION), 0.0
    for chunk in chunks:
        data = compressor.compress(chunk)
        if not data and time.monotonic() - given_at > _SHORT:
            data = compressor.flush(compressor.FLUSH_BLOCK)
        if data:
            given_at = time.monotonic()
            yield data
    yield compressor.flush()


def decompressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The content of all frames, in pieces of at most 256 KiB. Raises ArchiveUnreadable, also at an early end."""
    decompressor = None
    try:
        for data in _steps(chunks):
            while data or decompressor is not None:
                decompressor = decompressor or zstd.ZstdDecompressor(options=_DECOMPRESSION)
                if piece := decompressor.decompress(data, PIECE):
                    yield piece
                data = b""
                if decompressor.eof:
                    data, decompressor = decompressor.unused_data, None
                elif decompressor.needs_input:
                    break
    except zstd.ZstdError as error:
        raise ArchiveUnreadable(f"It is no zstd archive, or one with a window of more than 8 MiB: {error}") from None
    if decompressor is not None:
        raise ArchiveUnreadable("It ends too early: the archive is not whole")


def _steps(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        for at in range(0, len(chunk), _STEP):
            yield chunk[at : at + _STEP]
