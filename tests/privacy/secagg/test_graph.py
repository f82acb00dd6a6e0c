"""Degree, threshold and ring: the published table, the slow reference, uniform orders, symmetric neighbours."""

from collections import Counter
from fractions import Fraction
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare, hypergeom

from privacy.secagg import graph
from privacy.secagg.errors import ConfigurationError
from privacy.secagg.graph import Degree, complete_threshold, find_degree, neighbourhood, ring_order
from tests.reference import slow_graph

FRACTIONS = [(0.05, 0.05), (0.1, 0.1), (0.2, 0.1), (0.33, 0.1), (0.2, 0.2), (0.33, 0.33)]
# k/t by clients and (corrupt, dropout): curious server, lying server (sigma 40, eta 30)
TABLE = {
    50: "6/3 8/6, 12/6 16/11, 16/11 22/17, 22/17 28/23, 22/11 32/22, 34/17 none",
    100: "12/6 16/11, 22/11 32/22, 32/21 42/32, 42/32 54/44, 42/21 62/42, 68/34 none",
    500: "30/16 52/36, 46/25 94/64, 66/41 130/95, 98/67 184/143, 98/51 240/162, 230/118 496/331",
    1000: "34/18 62/43, 52/28 114/78, 76/47 162/118, 114/78 244/189, 112/59 340/229, 310/159 992/662",
    10_000: "38/21 74/51, 60/32 144/98, 90/55 216/157, 140/95 358/276, 136/71 566/381, 480/246 9886/6592",
}
ENTRIES = [
    (clients, corrupt, dropout, lying, entry)
    for clients, row in TABLE.items()
    for (corrupt, dropout), cell in zip(FRACTIONS, row.split(", "), strict=True)
    for lying, entry in zip((False, True), cell.split(), strict=True)
]


@pytest.mark.parametrize(("clients", "corrupt", "dropout", "lying", "entry"), ENTRIES)
def test_the_table(clients, corrupt, dropout, lying, entry):
    def find():
        return find_degree(clients, corrupt=corrupt, dropout=dropout, server="lying" if lying else "curious")

    if entry == "none":
        with pytest.raises(ConfigurationError, match=rf"^clients: {clients} with corrupt {corrupt}, dropout {dropout}"):
            find()
    else:
        assert find() == Degree(*map(int, entry.split("/")))


@settings(max_examples=60)
@given(
    st.integers(2, 36), st.integers(0, 99), st.integers(0, 99), st.integers(1, 24), st.integers(1, 24), st.booleans()
)
def test_the_search_agrees_with_trying_every_degree_and_threshold(clients, corrupt, dropout, sigma, eta, lying):
    expected = slow_graph.degree(clients, clients * corrupt // 100, clients * dropout // 100, sigma, eta, lying)
    try:
        found = find_degree(
            clients,
            corrupt=corrupt / 100,
            dropout=dropout / 100,
            sigma=sigma,
            eta=eta,
            server="lying" if lying else "curious",
        )
    except ConfigurationError:
        found = None
    assert found == (expected and Degree(*expected))


@given(st.integers(2, 80), st.data())
def test_a_tail_is_compared_exactly(clients, data):
    marked, drawn = data.draw(st.integers(0, clients - 1)), data.draw(st.integers(1, clients - 1))
    least, bits = data.draw(st.integers(-1, drawn + 1)), data.draw(st.integers(1, 60))
    exact = slow_graph.at_least(least, clients, marked, drawn)
    limit = Fraction(1, 2**bits * clients)
    assert graph._is_rare(clients, marked, drawn, least, bits) == (exact <= limit)
    if graph._is_common(clients, marked, drawn, least, bits):
        assert exact > limit


def test_equality_is_rare_enough_and_one_part_less_is_not():
    # 2 marked of 16, 1 drawn: Pr = 1/8 = 2^-3 = 2^1 / 16; 1 of 16: 1/16 = 2^-0 / 16
    assert graph._is_rare(16, 1, 1, 1, 0) and not graph._is_rare(16, 1, 1, 1, 1) and not graph._is_rare(16, 2, 1, 1, 0)
    # both of 2 marked of 4 drawn by 2: 1/6 <= 2^-bits / 4 fails from bits = 0 on, as 1/6 < 1/4 but 1/6 > 1/8
    assert graph._is_rare(4, 2, 2, 2, 0) and not graph._is_rare(4, 2, 2, 2, 1)


def test_connectivity_is_strict():
    # 5 clients, 2 neighbours, 2 lost: 5 pairs / C(5, 2) = 1/2, which is not below 2^-1
    assert graph._is_connected(5, 2, 2, 0) and not graph._is_connected(5, 2, 2, 1)


def test_the_chosen_threshold_is_the_least_by_scipy():
    degree = find_degree(1000, corrupt=0.1, dropout=0.1, server="curious")
    k, t = degree.neighbours, degree.threshold
    assert hypergeom.sf(t - 1, 1000, 100, k) < 2**-41 / 1000 < hypergeom.sf(t - 2, 1000, 100, k)
    assert hypergeom.cdf(t - 1, 1000, 900, k) < 2**-30 / 1000


def test_fractions_are_the_decimals_they_were_written_as():
    # 0.58 * 100 is 57.99999999999999, 0.29 * 100 is 28.999999999999996: rounded down, one client too few
    assert complete_threshold(100, corrupt=0.58, server="lying") == (100 + 58) // 2 + 1
    assert complete_threshold(100, corrupt=Fraction(58, 100), server="lying") == 80
    for written, whole in ((0.57, Fraction(57, 100)), (0.58, Fraction(58, 100))):
        found = find_degree(100, corrupt=written, dropout=0.05, server="curious")
        assert found == find_degree(100, corrupt=whole, dropout=0.05, server="curious")
        assert found != find_degree(100, corrupt=whole - Fraction(1, 100), dropout=0.05, server="curious")
    assert find_degree(100, corrupt=0.05, dropout=0.29, server="lying") == Degree(64, 35)  # 62/34 with 28 dropped


def test_no_share_is_the_secret_itself():
    assert find_degree(20, corrupt=0.0, dropout=0.0, server="curious") == Degree(2, 2)
    assert find_degree(20, corrupt=0.0, dropout=0.05, server="curious") == Degree(4, 2)


@pytest.mark.parametrize(
    ("clients", "corrupt", "lying", "threshold"),
    [
        (2, 0.0, False, 2),
        (3, 0.0, False, 2),
        (10, 0.2, False, 6),
        (10, 0.5, False, 6),
        (11, 0.2, False, 6),
        (10, 0.0, True, 6),
        (10, 0.2, True, 7),
        (10, 0.25, True, 7),
        (10, 0.33, True, 7),
        (9, 0.33, True, 6),
        (10, 0.9, True, 10),
    ],
)
def test_complete_thresholds(clients, corrupt, lying, threshold):
    assert complete_threshold(clients, corrupt=corrupt, server="lying" if lying else "curious") == threshold


@given(st.integers(2, 500), st.integers(0, 99))
def test_no_two_camps_of_holders_reach_the_threshold_with_the_corrupt_in_both(clients, percent):
    threshold = complete_threshold(clients, corrupt=percent / 100, server="lying")
    corrupted = clients * percent // 100
    assert 2 * threshold > clients + corrupted >= 2 * (threshold - 1)
    assert corrupted < threshold <= clients


def test_corrupt_clients_that_could_open_secrets_alone_are_refused():
    text = r"^corrupt: 0.6 of 10 clients hold 6 shares where 6 open a secret, allowed: at most 5$"
    with pytest.raises(ConfigurationError, match=text):
        complete_threshold(10, corrupt=0.6, server="curious")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"clients": 1}, r"clients: 1, allowed: a whole number from 2"),
        ({"clients": 50.0}, r"clients: 50\.0, allowed: a whole number from 2"),
        ({"corrupt": -0.1}, r"corrupt: -0\.1, allowed: a fraction of the clients from 0 up to but not 1"),
        ({"corrupt": 1.0}, r"corrupt: 1\.0, allowed"),
        ({"corrupt": float("nan")}, r"corrupt: nan, allowed"),
        ({"dropout": 1.5}, r"dropout: 1\.5, allowed"),
        ({"sigma": 0}, r"sigma: 0, allowed: a whole number from 1"),
        ({"eta": 30.5}, r"eta: 30\.5, allowed: a whole number from 1"),
        (
            {"corrupt": 0.33, "dropout": 0.33},
            r"clients: 50 with corrupt 0\.33, dropout 0\.33, sigma 40, eta 30 and a server that is lying leave no "
            r"number of neighbours, allowed: smaller fractions, more clients or the complete graph$",
        ),
    ],
)
def test_what_no_degree_can_be_found_for(change, text):
    settings = {"clients": 50, "corrupt": 0.1, "dropout": 0.1, "sigma": 40, "eta": 30, "server": "lying"} | change
    with pytest.raises(ConfigurationError, match=f"^{text}"):
        find_degree(settings.pop("clients"), **settings)


@given(st.binary(min_size=32, max_size=32), st.sets(st.integers(0, 2**40), max_size=40), st.randoms())
def test_the_order_is_a_function_of_the_seed_and_the_set(seed, members, shuffler):
    listed = list(members)
    shuffler.shuffle(listed)
    order = ring_order(seed, listed)
    assert order == ring_order(seed, sorted(members)) == slow_graph.ring_order(seed, members)
    assert sorted(order) == sorted(members)


def test_the_order_of_a_long_ring():
    seed = bytes(range(32))
    assert ring_order(seed, range(1500)) == slow_graph.ring_order(seed, range(1500))


def test_the_order_never_changes():
    """Every client of a sum computes it for itself, perhaps with another version of this package."""
    assert ring_order(bytes(32), range(10)) == (0, 7, 6, 5, 8, 4, 1, 3, 9, 2)


def chi_square(orders, items):
    counts = Counter(orders)
    return chisquare([counts[order] for order in permutations(items)]).pvalue


def biased_order(seed, items):
    """The well-known wrong shuffle: every place is swapped with any other."""
    order, words = list(items), slow_graph.words(seed)
    for place in range(len(order)):
        other = next(words) % len(order)
        order[place], order[other] = order[other], order[place]
    return tuple(order)


@pytest.mark.parametrize("items", [(0, 1, 2), (3, 5, 8, 13)])
def test_every_order_is_equally_likely(items):
    seeds = [number.to_bytes(32, "big") for number in range(9600)]
    assert 1e-3 < chi_square([ring_order(seed, items) for seed in seeds], items) < 1 - 1e-3
    assert chi_square([biased_order(seed, items) for seed in seeds[:4800]], items) < 1e-6


def test_a_draw_is_repeated_not_reduced():
    # up to 4 takes 3 bits: 5, 6 and 7 are drawn again
    assert graph._draw_up_to(4, iter([7, 2**32 - 3, 8 + 6, 16 + 4])) == 4
    assert [graph._draw_up_to(4, iter([number])) for number in range(5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("size", [0, 16, 31, 33])
def test_seeds_of_another_length_are_refused(size):
    with pytest.raises(ConfigurationError, match=rf"^ring seed: {size} bytes, allowed: 32$"):
        ring_order(bytes(size), [1, 2])


def test_a_member_that_comes_twice_is_refused():
    with pytest.raises(ConfigurationError, match=r"^ring members: 7 comes twice, allowed: distinct ids$"):
        ring_order(bytes(32), [7, 3, 9, 7])


@given(st.integers(1, 40), st.data())
def test_neighbours_are_the_nearest_and_mutual(size, data):
    order = data.draw(st.permutations(range(100, 100 + size)))
    neighbours = data.draw(st.integers(1, 24).map(lambda half: 2 * half) | st.integers(max(size - 1, 0), size + 3))
    near = {member: neighbourhood(order, neighbours, member) for member in order}
    for member, others in near.items():
        assert others == slow_graph.neighbourhood(order, neighbours + neighbours % 2, member)
        assert list(others) == sorted(set(others) - {member})
        assert len(others) == min(neighbours, size - 1)
        assert all(member in near[other] for other in others)


@pytest.mark.parametrize("neighbours", [-2, 0, 1, 3, 5])
def test_a_ring_needs_an_even_degree(neighbours):
    text = rf"^neighbours: {neighbours}, allowed: an even number from 2, or at least 7 for everybody$"
    with pytest.raises(ConfigurationError, match=text):
        neighbourhood(range(8), neighbours, 3)


def test_who_is_not_on_the_ring_has_no_neighbours():
    with pytest.raises(ConfigurationError, match=r"^ring member: 8, allowed: the 8 members of the ring$"):
        neighbourhood(range(8), 2, 8)


def test_a_smaller_ring_with_every_corrupt_client_on_it_wants_as_many_neighbours_as_its_own_numbers_say():
    whole = find_degree(1000, corrupt=0.1, dropout=0.1, server="lying")
    least = find_degree(1000, corrupt=0.1, dropout=0.1, server="lying", least=900)
    # 100 corrupt of 900 are the fraction 1/9; a bit more of secrecy pays for the union over up to 1000 clients. 100 of
    # 1000 that vanish are rarer among neighbours than 100 of 900, and as common as 90 of 900 on a smaller ring
    ninth = 100 / 900 + 1e-9
    below, above = (
        find_degree(900, corrupt=ninth, dropout=dropout, sigma=41, server="lying") for dropout in (0.1, ninth)
    )
    assert whole.neighbours < below.neighbours <= least.neighbours <= above.neighbours
    assert whole.threshold < below.threshold <= least.threshold <= above.threshold


@pytest.mark.parametrize("least", [0, 50, 101])
def test_the_smallest_ring_is_more_than_half_of_the_clients(least):
    with pytest.raises(
        ConfigurationError, match=f"least: {least}, allowed: more than half of 100 clients, at most all"
    ):
        find_degree(100, corrupt=0.1, dropout=0.1, server="lying", least=least)
