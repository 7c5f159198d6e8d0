"""Zstandard streams: what is not whole is refused, and no input makes the reader take more memory than its pieces."""

import os
import random

import pytest

from runtimes.tar_stream import PIECE, ArchiveUnreadable
from supervisor import archives
from supervisor.archives import compressed, decompressed, zstd


def packed(data: bytes) -> bytes:
    return b"".join(compressed([data]))


@pytest.mark.parametrize("data", [b"no frame", packed(os.urandom(5000))[:-1], packed(b"x")[:3], packed(b"x") + b"more"])
def test_what_is_no_whole_frame_is_refused(data):
    with pytest.raises(ArchiveUnreadable):
        list(decompressed([data]))


def test_a_changed_byte_is_found_by_the_checksum():
    data = bytearray(packed(random.Random(1).randbytes(100_000)))
    data[50_000] ^= 1

    with pytest.raises(ArchiveUnreadable):
        list(decompressed([bytes(data)]))


def test_a_frame_that_asks_its_reader_for_more_than_8_mib_is_refused():
    window = {
        zstd.CompressionParameter.window_log: 27,
        zstd.CompressionParameter.content_size_flag: 0,
    }
    compressor = zstd.ZstdCompressor(options=window)

    with pytest.raises(ArchiveUnreadable, match="8 MiB"):
        list(decompressed([compressor.compress(bytes(1000)) + compressor.flush()]))


def test_a_bomb_comes_in_small_pieces():
    pieces = decompressed([packed(bytes(200 << 20))])

    assert all(len(piece) <= PIECE for piece in pieces)


@pytest.mark.process("reads 100,000 frames")
def test_a_hundred_thousand_empty_frames_are_read():
    assert list(decompressed([packed(b"") * 100_000, packed(b"x")])) == [b"x"]


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_round_trip_is_exact_however_the_bytes_are_cut(size):
    data = random.Random(2).randbytes(10_000) + bytes(10_000)
    whole = packed(data[:5000]) + packed(data[5000:])

    assert b"".join(decompressed(whole[at : at + size] for at in range(0, len(whole), size))) == data


def test_a_slow_source_is_sent_on_before_a_block_is_full(monkeypatch):
    monkeypatch.setattr(archives, "_SHORT", 0.0)
    sent = compressed(iter([b"a", b"b"]))

    first = next(sent)

    assert zstd.ZstdDecompressor().decompress(first) == b"a"
