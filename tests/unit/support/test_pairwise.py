"""Every pair of values meets, in fewer rows than the full product has."""

from itertools import combinations, product

from tests.support.pairwise import pairwise


def test_every_two_values_of_two_parameters_meet():
    parameters = (["shm", "grpc"], ["dram", "disk", "none"], [False, True], ["always", "never"])
    rows = pairwise(*parameters)
    assert len(rows) < 10
    for (one, ones), (other, others) in combinations(enumerate(parameters), 2):
        met = {(row[one], row[other]) for row in rows}
        assert met == set(product(ones, others))


def test_two_parameters_have_their_full_product():
    assert sorted(pairwise([1, 2], [3, 4])) == [(1, 3), (1, 4), (2, 3), (2, 4)]
