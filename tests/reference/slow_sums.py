"""A secure sum's numbers and masks, in plain Python integers and fractions, one word at a time."""

from fractions import Fraction

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB


def clip(x, limit):
    """A number as a fraction, moved to the nearest of -limit and limit if it is beyond."""
    return Fraction(min(max(x, -limit), limit))  # Python compares numbers exactly


def fits(clients, largest_weight, limit, fraction_bits, bits):
    """n (2^b W C + 1) < 2^(bits - 1): what all clients can send together is below half the ring."""
    return clients * (Fraction(2) ** fraction_bits * largest_weight * Fraction(limit) + 1) < 2 ** (bits - 1)


def weighted_mean(columns, weights, limit):
    """sum_k n_k clip(x_k) / sum_k n_k of one coordinate, exactly."""
    total = sum(n * clip(x, limit) for x, n in zip(columns, weights, strict=True))
    return total / sum(weights)


def words(vector, words64):
    """The vector's little-endian words as (value, bits): words of 8 bytes first, then of 4."""
    data, found, at = bytes(vector), [], 0
    while at < len(data):
        size = 8 if at < 8 * words64 else 4
        found.append((int.from_bytes(data[at : at + size], "little"), 8 * size))
        at += size
    return found


def keystream(key, length, counter=0):
    """CTR mode by its definition: block i is the encryption of the counter plus i, big-endian (SP 800-38A, 6.5)."""
    cipher = Cipher(AES(key), ECB()).encryptor()
    blocks = range(-(-length // 16))
    stream = b"".join(cipher.update(((counter + i) % 2**128).to_bytes(16, "big")) for i in blocks)
    return stream[:length]


def masked(vector, words64, masks):
    """The vector's bytes after adding every (key, sign), the whole keystream at once."""
    values = words(vector, words64)
    for key, sign in masks:
        noise = words(keystream(key, len(vector)), words64)
        values = [((v + sign * m) % 2**bits, bits) for (v, bits), (m, _) in zip(values, noise, strict=True)]
    return b"".join(value.to_bytes(bits // 8, "little") for value, bits in values)
