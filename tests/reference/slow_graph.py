"""Degree, ring and neighbours by definition: fractions, every threshold in turn, distances, a block at a time."""

import itertools
from fractions import Fraction
from math import comb

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB


def at_least(least, clients, marked, drawn):
    """Pr[Hypergeometric(clients, marked, drawn) >= least], a fraction."""
    ways = sum(
        comb(marked, count) * comb(clients - marked, drawn - count)
        for count in range(max(least, 0), min(marked, drawn) + 1)
    )
    return Fraction(ways, comb(clients, drawn))


def degree(clients, corrupted, dropped, sigma, eta, lying_server):
    """(k, t) by the four conditions, every even k and every t from 2 in turn; None where none will do."""
    for k, t in itertools.product(range(2, clients, 2), range(2, clients)):
        if t <= k and holds(clients, corrupted, dropped, sigma, eta, lying_server, k, t):
            return k, t
    return None


def holds(clients, corrupted, dropped, sigma, eta, lying_server, k, t):
    """The four conditions for one degree and threshold."""
    small = Fraction(1, 2 ** (sigma + 1))
    pairs = Fraction(clients * (clients - k - 1), 2)
    connected = pairs * comb(corrupted + dropped, k) / comb(clients, k) < small
    tails = [at_least(s, clients, corrupted, k) <= small / clients for s in range(k + 2)]
    secret = t > k or tails[t]
    correct = 1 - at_least(t, clients, clients - dropped, k) <= Fraction(1, 2**eta * clients)
    truthful = not lying_server or 2 * t > k + tails.index(True) - 1
    return connected and secret and correct and truthful


def words(seed):
    """Little-endian 32-bit words of AES-256 of the numbers 0, 1, 2, ... as 16 big-endian bytes."""
    for counter in itertools.count():
        block = Cipher(AES(seed), ECB()).encryptor().update(counter.to_bytes(16, "big"))
        for start in range(0, 16, 4):
            yield int.from_bytes(block[start : start + 4], "little")


def ring_order(seed, members):
    """The shuffle from the end of the sorted list, a word at a time."""
    order, stream = sorted(members), words(seed)
    for last in reversed(range(1, len(order))):
        number = last + 1
        while number > last:
            number = next(stream) % 2 ** last.bit_length()
        order[last], order[number] = order[number], order[last]
    return tuple(order)


def neighbourhood(order, neighbours, member):
    """Everybody at a distance of at most half the neighbours, either way round."""
    here, size = order.index(member), len(order)

    def distance(there):
        return min((there - here) % size, (here - there) % size)

    return tuple(sorted(order[i] for i in range(size) if 0 < distance(i) <= neighbours // 2))
