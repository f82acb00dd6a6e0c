"""The plain channel: float32 losses in the clear, and nothing else."""

import numpy as np
import pytest

from privacy.channels.channel import Losses, Memory, UploadError, pooled
from privacy.channels.plain import PlainProxies

CHANNEL = PlainProxies()


def encoded(proxies):
    """What a client uploads; its newest losses are in no upload."""
    upload, memory = CHANNEL.encode(Losses(np.full(len(proxies), 7.0), proxies), Memory.fresh(), None)
    assert memory.releases == 0
    return upload


def test_encode_rounds_to_float32_and_rows_give_that_back():
    losses = np.array([0.1, 2.5, 1e-9, 17.0])
    upload = encoded(losses)
    assert set(upload) == {"proxies"} and upload["proxies"].dtype == np.float32
    found = CHANNEL.rows(0, upload)
    rows = found.values
    assert found.sd == 0 and rows.dtype == np.float64
    # float32 has a 24-bit significand: relative rounding of at most 2^-24
    np.testing.assert_allclose(rows, losses, rtol=2.0**-24)
    assert rows[1] == 2.5 and rows[0] != 0.1


def test_the_pool_is_in_the_order_of_client_numbers():
    uploads = {10: encoded(np.array([3.0])), 9: encoded(np.array([1.0, 2.0]))}
    values, sds = pooled({client: CHANNEL.rows(client, upload) for client, upload in uploads.items()})
    assert values.tolist() == [1.0, 2.0, 3.0] and values.dtype == np.float64 and sds.tolist() == [0.0] * 3


def test_an_empty_pool_is_empty():
    assert pooled({})[0].shape == pooled({})[1].shape == (0,)


@pytest.mark.parametrize("proxy", [-1e-6, 100.00001, 3e38, np.inf, -np.inf, np.nan])
def test_losses_that_no_client_sends_are_refused_and_the_client_named(proxy):
    with pytest.raises(UploadError, match=r"client 4: proxy .* nats, allowed: from 0 to 100"):
        CHANNEL.rows(4, {"proxies": np.array([0.5, proxy], np.float32)})
    assert CHANNEL.rows(3, encoded(np.array([0.0, 100.0]))).values.tolist() == [0.0, 100.0], "the limits are allowed"


ONE = np.ones(2, np.float32)


@pytest.mark.parametrize(
    "upload",
    [
        {},
        {"losses": ONE},
        {"proxies": ONE, "labels": ONE},
        {"proxies": ONE.astype(np.float64)},
        {"proxies": np.ones(2, np.int64)},
        {"proxies": np.ones((2, 1), np.float32)},
        {"proxies": np.array(1.0, np.float32)},
    ],
    ids=["nothing", "another name", "one more", "float64", "integers", "a matrix", "a scalar"],
)
def test_any_other_upload_is_refused(upload):
    with pytest.raises(ValueError, match=r"client 6: upload .*allowed: one float32 vector named proxies"):
        CHANNEL.rows(6, upload)


def test_the_claim_is_that_nothing_is_protected():
    (claim,) = CHANNEL.claims()
    assert (claim.subject, claim.channel, claim.epsilon, claim.mechanism) == ("loss proxies", "plain", None, None)
