"""Masks: known answers, a slow reference, any number of threads, and uniform output whatever is masked."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import slow_sums
from scipy import stats

from privacy.secagg import masks as module
from privacy.secagg.errors import ConfigurationError
from privacy.secagg.masks import BLOCK, Mask, apply

KEYS = [bytes([i]) * 32 for i in range(4)]

# NIST SP 800-38A, appendix F.5.5 (CTR-AES256.Encrypt): the keystream is plaintext xor ciphertext.
NIST_KEY = "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4"
NIST_COUNTER = "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
NIST_PLAIN = (
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
NIST_CIPHER = (
    "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    "2b0930daa23de94ce87017ba2d84988ddfc9c58db67aada613c2dd08457941a6"
)


@pytest.mark.parametrize("words64", [0, 3, 8])
@pytest.mark.parametrize("block", [16, 48, BLOCK])
def test_the_keystream_is_nists(words64, block):
    vector = np.zeros(64, np.uint8)
    counter, mask = int(NIST_COUNTER, 16), Mask(bytes.fromhex(NIST_KEY), 1)
    module._apply_range(vector, words64, [mask], 0, 64, first_counter=counter, block=block)
    keystream = int(NIST_PLAIN, 16) ^ int(NIST_CIPHER, 16)
    assert vector.tobytes() == keystream.to_bytes(64, "big")


def test_the_counter_starts_at_zero_and_wraps_at_its_end():
    vector = np.zeros(32, np.uint8)
    apply(vector, 0, [Mask(KEYS[1], 1)])
    assert vector.tobytes() == slow_sums.keystream(KEYS[1], 32)
    wrapped = np.zeros(32, np.uint8)
    module._apply_range(wrapped, 0, [Mask(KEYS[1], 1)], 0, 32, first_counter=2**128 - 1)
    assert wrapped.tobytes()[16:] == vector.tobytes()[:16]


SIGNED = st.lists(st.sampled_from([1, -1]), max_size=4)


@given(st.binary(max_size=400), st.integers(0, 50), SIGNED, st.sampled_from([16, 32, 112, BLOCK]))
def test_masks_are_added_as_the_slow_reference_adds_them(data, words64, signs, block):
    data = data[: len(data) // 4 * 4]
    words64 = min(words64, len(data) // 8)
    keyed = list(zip(KEYS, signs, strict=False))
    vector = np.frombuffer(data, np.uint8).copy()
    module._apply_range(vector, words64, [Mask(*pair) for pair in keyed], 0, vector.size, block=block)
    assert vector.tobytes() == slow_sums.masked(data, words64, keyed)


def filled(size):
    return np.random.default_rng(7).integers(0, 256, size, np.uint8)


@pytest.mark.parametrize("size", [0, 4, 20, BLOCK - 4, BLOCK, BLOCK + 4, 3 * BLOCK + 12, 5 * BLOCK])
@pytest.mark.parametrize("words64", [0, 2, BLOCK // 8 + 1])
def test_any_number_of_threads_and_any_block_size_give_the_same_bytes(size, words64):
    words64 = min(words64, size // 8)
    masks = [Mask(key, sign) for key, sign in zip(KEYS, [1, -1, 1, -1], strict=True)]
    once = filled(size)
    module._apply_range(once, words64, masks, 0, size, block=BLOCK)
    for threads in (1, 2, 3, 5, 64):
        vector = filled(size)
        apply(vector, words64, masks, threads=threads)
        assert np.array_equal(vector, once), threads
    for block in (4096, BLOCK // 2):
        vector = filled(size)
        module._apply_range(vector, words64, masks, 0, size, block=block)
        assert np.array_equal(vector, once), block


@pytest.mark.parametrize("threads", [1, 2])
def test_subtracting_what_was_added_gives_the_vector_back(threads):
    vector = filled(2 * BLOCK + 8)
    apply(vector, 6, [Mask(key, 1) for key in KEYS], threads=threads)
    assert not np.array_equal(vector, filled(vector.size))
    apply(vector, 6, [Mask(key, -1) for key in reversed(KEYS)], threads=threads)
    assert np.array_equal(vector, filled(vector.size))


def test_a_fault_in_a_thread_is_not_swallowed(monkeypatch):
    def fail(*arguments, **options):
        raise MemoryError("no room")

    monkeypatch.setattr(module, "_apply_range", fail)
    with pytest.raises(MemoryError, match="no room"):
        apply(filled(4 * BLOCK), 0, [Mask(KEYS[0], 1)], threads=2)


# Uniformity. With N draws over m cells the statistic is chi-square with m - 1 degrees of freedom, and under cell
# probabilities p noncentral by N m sum (p - 1/m)^2. ALPHA is tiny because keys are fixed: the tests cannot flicker.
WORDS = 1 << 18
ALPHA = 1e-6
COUNTS = {"bytes": 256, "top bits": 1024}


def p_value(vector, what):
    cells = COUNTS[what]
    draws = vector if what == "bytes" else vector.view("<u4") >> 22
    observed = np.bincount(draws, minlength=cells)
    return stats.chisquare(observed).pvalue


def power(what, probabilities):
    """The chance that `p_value` of N independent draws with these probabilities falls below ALPHA."""
    cells, draws = COUNTS[what], 4 * WORDS if what == "bytes" else WORDS
    noncentral = draws * cells * np.sum((probabilities - 1 / cells) ** 2)
    return stats.ncx2.sf(stats.chi2.isf(ALPHA, cells - 1), cells - 1, noncentral)


@pytest.mark.parametrize("what", COUNTS)
@pytest.mark.parametrize("value", [0, 255], ids=["zeros", "maxima"])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("words64", [0, WORDS // 2])
def test_a_masked_vector_is_uniform_whatever_it_was(what, value, sign, words64):
    vector = np.full(4 * WORDS, value, np.uint8)
    apply(vector, words64, [Mask(KEYS[3], sign)])
    assert p_value(vector, what) > ALPHA


def largest_missing(cells):
    """Draws from 0 to modulus - 2, as of `randint(0, modulus - 1)`."""
    return np.where(np.arange(cells) < cells - 1, 1 / (cells - 1), 0.0)


def one_bit_stuck(cells):
    return np.where(np.arange(cells) % 2 == 0, 2 / cells, 0.0)


def slightly_uneven(cells):
    """Half of the cells a tenth more likely than the other half."""
    return np.where(np.arange(cells) < cells // 2, 1.05, 0.95) / cells


@pytest.mark.parametrize(
    ("what", "biased"),
    [
        ("bytes", largest_missing),
        ("bytes", one_bit_stuck),
        ("bytes", slightly_uneven),
        ("top bits", one_bit_stuck),
        ("top bits", slightly_uneven),
    ],
)
def test_the_uniformity_test_rejects_a_biased_mask(what, biased):
    """Derived power above 99.9 %, and a drawn example is rejected."""
    cells = COUNTS[what]
    assert power(what, biased(cells)) > 0.999
    rng, size = np.random.default_rng(5), 4 * WORDS if what == "bytes" else WORDS
    draws = rng.choice(cells, size, p=biased(cells))
    low = rng.integers(0, 1 << 22, size, np.uint32)
    vector = draws.astype(np.uint8) if what == "bytes" else (draws.astype(np.uint32) << 22 | low).view(np.uint8)
    assert p_value(vector, what) < ALPHA


def test_a_bit_stuck_in_one_byte_of_each_mask_word_is_rejected():
    vector = np.zeros(4 * WORDS, np.uint8)
    apply(vector, 0, [Mask(KEYS[3], 1)])
    vector.view("<u4")[:] |= 1 << 9
    assert p_value(vector, "bytes") < ALPHA


def test_a_mask_never_shows_its_key():
    mask = Mask(b"secret key of thirty-two bytes!!", -1)
    assert repr(mask) == str(mask) == "Mask(sign=-1)"


@pytest.mark.parametrize(
    ("key", "sign", "message"),
    [
        (b"k" * 31, 1, "mask key: 31 bytes, allowed: 32"),
        (b"k" * 33, 1, "mask key: 33 bytes, allowed: 32"),
        ("k" * 32, 1, "mask key: a str, allowed: 32 bytes"),
        (b"k" * 32, 0, "mask sign: 0, allowed: 1 or -1"),
        (b"k" * 32, True, "mask sign: True, allowed: 1 or -1"),
        (b"k" * 32, 1.0, "mask sign: 1.0, allowed: 1 or -1"),
    ],
)
def test_other_masks_are_refused_without_showing_the_key(key, sign, message):
    with pytest.raises(ConfigurationError) as refused:
        Mask(key, sign)
    assert str(refused.value) == message


ROW = np.zeros(32, np.uint8)
FROZEN = np.frombuffer(bytes(32), np.uint8)


@pytest.mark.parametrize(
    ("vector", "words64", "message"),
    [
        (bytearray(32), 0, "something else, allowed: one row of uint8"),
        (np.zeros(8, np.uint32), 0, "something else, allowed: one row of uint8"),
        (np.zeros((2, 16), np.uint8), 0, "something else, allowed: one row of uint8"),
        (np.zeros(64, np.uint8)[::2], 0, "strided or read-only"),
        (FROZEN, 0, "strided or read-only"),
        (ROW, 5, "32 bytes with 5 words of 8 bytes"),
        (ROW, -1, "32 bytes with -1 words of 8 bytes"),
        (ROW[:30], 0, "30 bytes with 0 words of 8 bytes"),
    ],
)
def test_other_vectors_are_refused(vector, words64, message):
    with pytest.raises(ConfigurationError, match=message):
        apply(vector, words64, [Mask(KEYS[0], 1)])


@pytest.mark.parametrize("threads", [0, -1, 1.0, True])
def test_other_numbers_of_threads_are_refused(threads):
    with pytest.raises(ConfigurationError, match=r"threads: .*, allowed: a whole number from 1"):
        apply(ROW.copy(), 0, [], threads=threads)


def test_two_masks_with_one_key_are_refused_since_they_would_cancel():
    vector = filled(32)
    with pytest.raises(ConfigurationError, match="masks: 2 that share a key, allowed: a key of its own for each"):
        apply(vector, 0, [Mask(KEYS[0], 1), Mask(KEYS[0], -1)])
    assert np.array_equal(vector, filled(32))
