"""Codes of fewer than eight bits in bytes, the ways the block formats arrange them."""

import numpy as np
from numpy.typing import NDArray

from impl.reference.blocks.arithmetic import compiled


@compiled
def pack_nibbles(codes: NDArray[np.uint8], blocks: NDArray[np.uint8], at: int) -> None:
    """Write uint8[n, 2 m] from byte ``at`` on: code j in the low half of byte j, j + m in the high.

    Bits above the fourth are left out.
    """
    half = codes.shape[1] // 2
    for block in range(codes.shape[0]):
        # Slices, each of one stride, are what the compiler makes wide instructions of.
        low, high, packed = codes[block, :half], codes[block, half:], blocks[block, at : at + half]
        for j in range(half):
            packed[j] = np.uint8(low[j] & np.uint8(15)) | np.uint8(high[j] << np.uint8(4))


@compiled
def pack_fifth_bits(codes: NDArray[np.uint8], blocks: NDArray[np.uint8], at: int) -> None:
    """Write the fifth bit of each of uint8[blocks, 32] below 32 from byte ``at`` on: that of code j is bit j of 32."""
    eights = codes.view(np.uint64)
    for block in range(eights.shape[0]):
        for i in range(eights.shape[1]):
            bits = np.uint64(eights[block, i] >> np.uint64(4)) & np.uint64(0x0101010101010101)
            # The product brings bit 8 j to bit 56 + j, without a carry.
            blocks[block, at + i] = np.uint8(np.uint64(bits * np.uint64(0x0102040810204080)) >> np.uint64(56))


def unpack_nibbles(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[..., n] to uint8[..., 2 n]: the low halves, then the high halves."""
    return np.concatenate([packed & np.uint8(15), packed >> np.uint8(4)], axis=-1)


@compiled
def pack_crumbs(codes: NDArray[np.uint8], lowest: int) -> NDArray[np.uint8]:
    """Bits ``lowest`` and ``lowest`` + 1 of uint8[n, 256] to uint8[n, 64]: of four codes, 32 apart, in a byte.

    Those of the first are lowest.
    """
    packed = np.empty((codes.shape[0], 64), np.uint8)
    for block in range(codes.shape[0]):
        for start in range(0, 64, 32):
            run, into = codes[block, 4 * start : 4 * start + 128], packed[block, start : start + 32]
            for j in range(into.size):
                crumbs = np.uint8(0)
                for k in range(4):
                    crumb = np.uint8(run[32 * k + j] >> np.uint8(lowest)) & np.uint8(3)
                    crumbs |= np.uint8(crumb << np.uint8(2 * k))
                into[j] = crumbs
    return packed


def unpack_crumbs(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[n, 64] to uint8[n, 256]."""
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return ((packed.reshape(-1, 2, 1, 32) >> shifts) & np.uint8(3)).reshape(-1, 256)


@compiled
def pack_bits(codes: NDArray[np.uint8], bit: int) -> NDArray[np.uint8]:
    """Bit ``bit`` of uint8[n, 256] to uint8[n, 32]: that of code 32 k + j becomes bit k of byte j."""
    packed = np.empty((codes.shape[0], 32), np.uint8)
    for block in range(codes.shape[0]):
        run, into = codes[block], packed[block]
        for j in range(into.size):
            bits = np.uint8(0)
            for k in range(8):
                one = np.uint8(run[32 * k + j] >> np.uint8(bit)) & np.uint8(1)
                bits |= np.uint8(one << np.uint8(k))
            into[j] = bits
    return packed


def unpack_bits(packed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """uint8[n, 32] to uint8[n, 256] of 0 and 1."""
    return np.unpackbits(packed[:, None], axis=1, bitorder="little").reshape(-1, 256)
